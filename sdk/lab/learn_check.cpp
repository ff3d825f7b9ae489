// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/learn_check.h"

#include <baton/distributions.h>
#include <baton/turns.h>
#include <mutex>

namespace baton::inline v1 {
namespace {

using Answers = std::map<std::string, std::vector<std::int32_t>>;
using Distributions = std::map<std::string, std::vector<std::vector<float>>>;

struct Watched {
  bool ok = false;
  Answers answers;
  Distributions distributions;
};

Watched watch(const Engine& engine, const Workflow& workflow, RunOptions options) {
  std::map<std::pair<std::string, int>, std::string> ids;
  for (const TurnInfo& turn : workflow.turns()) ids[{turn.agent, turn.round}] = turn.id;
  Watched seen;
  std::mutex mutex;  // models have threads of their own
  options.on_event = [&](const Event& event) {
    if (const auto* token = std::get_if<Token>(&event))
      seen.answers[ids.at({token->agent, token->round})].push_back(token->id);
  };
  options.on_logits = [&](const std::string& turn, std::span<const float> logits) {
    std::vector<float> row(logits.begin(), logits.end());
    const std::lock_guard lock(mutex);
    seen.distributions[turn].push_back(std::move(row));
  };
  seen.ok = engine.run(workflow, options).state == RunState::ok;
  return seen;
}

void add(Divergence& sum, const Distributions& reference, const Distributions& other, const std::string& turn) {
  const auto p = reference.find(turn), q = other.find(turn);
  if (p == reference.end() || q == other.end()) return;
  constexpr double kMinKl = 1e-9;  // nats: as good as equal
  bool changed = false;
  double kl = 0.0;
  for (std::size_t i = 0; i < std::min(p->second.size(), q->second.size()); ++i) {
    kl += divergence(p->second[i], q->second[i]);
    changed = changed || likeliest(p->second[i]) != likeliest(q->second[i]);
  }
  sum.log_kl += std::log(kl + kMinKl);
  ++sum.answers;
  sum.changed += changed ? 1 : 0;
}

}  // namespace

Workflow with_method(const Workflow& workflow, const Method& method, const std::function<void(ReuseOptions&)>& change) {
  auto impl = std::make_shared<Workflow::Impl>(workflow.impl());
  auto plan = std::make_shared<Plan>(*impl->plan);
  plan->relay = method.name;
  plan->reuse.method = &method;
  plan->reuse.record = takes_segments(plan->reuse);
  change(plan->reuse);
  impl->plan = std::move(plan);
  return Workflow(std::move(impl));
}

std::map<std::string, TurnDivergence> check_corrections(const Engine& engine, const Workflow& workflow,
                                                        const std::vector<std::map<std::string, std::string>>& inputs,
                                                        std::uint64_t seed, const std::stop_token& stop,
                                                        const std::function<void(double)>& on_progress) {
  const Workflow full = with_method(workflow, method_of(MethodId::full), [](ReuseOptions&) {});
  const auto rectify = [&](bool correct) {
    return with_method(workflow, method_of(MethodId::rectify), [&](ReuseOptions& reuse) {
      reuse.correct = correct;
      reuse.min_tokens = 1;
    });
  };
  const Workflow plain = rectify(false), corrected = rectify(true);
  std::map<std::string, TurnDivergence> turns;
  for (std::size_t i = 0; i < inputs.size() && !stop.stop_requested(); ++i) {
    RunOptions options;
    options.inputs = inputs[i];
    options.seed = seed;
    options.stop = stop;
    const Watched truth = watch(engine, full, options);
    options.forced_outputs = truth.answers;
    const Watched without = watch(engine, plain, options), with = watch(engine, corrected, options);
    if (on_progress) on_progress(static_cast<double>(i + 1) / static_cast<double>(inputs.size()));
    if (!truth.ok || !without.ok || !with.ok) continue;
    for (const auto& [turn, answers] : truth.answers) {
      add(turns[turn].plain, truth.distributions, without.distributions, turn);
      add(turns[turn].corrected, truth.distributions, with.distributions, turn);
    }
  }
  return turns;
}

}  // namespace baton::inline v1
