// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/learning/profile_files.h"
#include "engine/registry.h"
#include "engine/reuse/rectify/corrections.h"
#include "engine/reuse/rectify/rectify.h"
#include "sdk/lab/correction_learner.h"
#include "sdk/src/internal.h"

#include <baton/distributions.h>
#include <baton/lab/learn.h>
#include <baton/turns.h>

namespace baton::inline v1::lab {

/// How far a method is from full prefill over a turn's answers.
struct Divergence {
  double log_kl = 0.0;  // sum over answers of the logarithm of their KL divergence, in nats, summed over tokens
  int answers = 0;
  int changed = 0;  // answers of which some token is no longer the likeliest
};

struct TurnDivergence {
  Divergence plain;
  Divergence corrected;
};

/// Runs the workflow over the inputs one after the other: in full, then, forced to the same answers, with method
/// rectify as the workflow has it but for min_tokens, which is 1, without and with what the engine's models have for
/// corrections. By turn. Runs that fail are left out. on_progress: fraction done.
std::map<std::string, TurnDivergence> check_corrections(const Engine& engine, const Workflow& workflow,
                                                        const std::vector<std::map<std::string, std::string>>& inputs,
                                                        std::uint64_t seed, const std::stop_token& stop,
                                                        const std::function<void(double)>& on_progress);

/// The workflow with another method and other options of reuse.
Workflow with_method(const Workflow& workflow, const Method& method, const std::function<void(ReuseOptions&)>& change);

namespace {

using Answers = std::map<std::string, std::vector<std::int32_t>>;
using Distributions = std::map<std::string, std::vector<std::vector<float>>>;

struct Watched {
  bool ok = false;
  Answers answers, thinking;
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
    else if (const auto* thought = std::get_if<ThinkingToken>(&event))
      seen.thinking[ids.at({thought->agent, thought->round})].push_back(thought->id);
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
  const Method& before = *plan->reuse.method;
  if (before.rectify_options != nullptr && &method == &rectify_method())
    plan->reuse.own = RectifyOptions(*before.rectify_options(plan->reuse));
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
  const Workflow full = with_method(workflow, full_method(), [](ReuseOptions&) {});
  const auto rectify = [&](bool correct) {
    return with_method(workflow, rectify_method(), [&](ReuseOptions& reuse) {
      own<RectifyOptions>(reuse).correct = correct;
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
    options.forced_thinking = truth.thinking;
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

// Learning corrections: runs of a workflow whose prompts are computed in full, watched by a learner for each model.

namespace fs = std::filesystem;

struct LearnResult::Impl {
  struct OfModel {
    std::shared_ptr<LocalEngine> engine;
    std::shared_ptr<CorrectionLearner> learner;
    Corrections kept;
  };
  std::vector<OfModel> models;
};

namespace {

/// Every prompt computed in full, and every placeholder looked at, whatever its length: a map of long answers alone
/// would be wrong for short ones.
void look_at_all(ReuseOptions& reuse) {
  reuse.min_tokens = 1;
  reuse.method->observe(reuse);
  reuse.prefix = false;
}

/// The method by which the texts of prompts are observed.
const Method& observer() {
  if (const Method* method = sampling_method()) return *method;
  throw InputError("this program has no method that observes the texts of prompts, from which corrections are learned");
}

// Approximate fractions of the time.
constexpr double kRunning = 0.5, kSolving = 0.2;
/// One in kCheckEvery inputs, at most kMaxChecks, is held out to measure the corrections.
constexpr std::size_t kCheckEvery = 6, kMaxChecks = 48;

using Inputs = std::vector<std::map<std::string, std::string>>;

/// One run for each of the inputs, several at a time. Returns how many of them failed.
int run_all(const Engine& engine, const Workflow& workflow, const Inputs& inputs, const LearnOptions& options,
            std::string& first_error) {
  std::atomic<std::size_t> next{0}, over{0};
  std::mutex mutex;
  int failed = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < inputs.size() && !options.stop.stop_requested(); i = next++) {
      std::string error;
      try {
        RunOptions run;
        run.inputs = inputs[i];
        run.seed = options.seed;
        run.stop = options.stop;
        const RunRecord record = engine.run(workflow, run);
        if (record.state != RunState::ok)
          error = record.error.empty() ? std::string(name_of(record.state)) : record.error;
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      ++over;
      const std::lock_guard lock(mutex);
      if (!error.empty() && ++failed == 1) first_error = error;
    }
  };
  std::vector<std::jthread> threads;
  const auto count = std::min(inputs.size(), static_cast<std::size_t>(options.jobs));
  try {
    while (threads.size() < count) threads.emplace_back(work);
  } catch (const std::system_error&) {  // those that have started do all the work
    if (threads.empty()) throw ResourceError(ResourceError::Kind::memory, "the system cannot start a thread");
  }
  while (over < inputs.size() && !options.stop.stop_requested()) {
    if (options.on_progress)
      options.on_progress(kRunning * static_cast<double>(over) / static_cast<double>(inputs.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  threads.clear();
  return failed;
}

}  // namespace

std::optional<LearnResult> learn_corrections(const Workflow& workflow, const LearnOptions& options) {
  if (options.inputs.empty()) throw InputError("inputs: expected the inputs of at least one run to learn from");
  if (options.rank < 1) throw InputError(fmt::format("rank: expected at least 1, found {}", options.rank));
  if (options.jobs < 1 || options.jobs > 1024)
    throw InputError(fmt::format("jobs: expected a value in [1, 1024], found {}", options.jobs));
  for (const auto& inputs : options.inputs) complete_inputs(*workflow.impl().plan->spec, inputs);
  EngineOptions engine_options;
  engine_options.model = options.model;
  engine_options.device = options.device;
  engine_options.threads = options.threads;
  engine_options.on_load = options.on_load;
  const Engine engine = Engine::open(engine_options);
  const Workflow full = with_method(workflow, observer(), look_at_all);
  auto impl = std::make_shared<LearnResult::Impl>();
  for (const auto& opened : open_models(engine, full).distinct_engines()) {
    auto learner = std::make_shared<CorrectionLearner>(LinearFitOptions{.rank = options.rank});
    opened->method_state(observer())->on_sample([learner](const PlaceSample& sample) { learner->add(sample); });
    impl->models.push_back({opened, learner, {}});
  }
  const std::size_t checks = std::min(kMaxChecks, options.inputs.size() / kCheckEvery);
  const Inputs learned(options.inputs.begin(), options.inputs.end() - static_cast<std::ptrdiff_t>(checks));
  const Inputs checked(options.inputs.end() - static_cast<std::ptrdiff_t>(checks), options.inputs.end());
  LearnResult result;
  result.checked_runs = static_cast<int>(checks);
  result.failed_runs = run_all(engine, full, learned, options, result.first_error);
  std::vector<std::vector<LearnedPlace>> places;
  for (const LearnResult::Impl::OfModel& model : impl->models) {
    model.engine->method_state(observer())->flush();
    model.engine->method_state(observer())->on_sample(nullptr);
    places.push_back(model.learner->fit(
        [&](double share) {
          const double all = (static_cast<double>(places.size()) + share) / static_cast<double>(impl->models.size());
          if (options.on_progress) options.on_progress(kRunning + kSolving * all);
        },
        options.stop));
    Corrections all;
    for (const LearnedPlace& place : places.back()) {
      if (place.correction) all[place.key] = place.correction;
    }
    update_calibration(*model.engine, [&](Calibration& now) {
      now.corrections = std::make_shared<const Corrections>(std::move(all));
    });
  }
  const auto turns = check_corrections(engine, workflow, checked, options.seed, options.stop, [&](double share) {
    if (options.on_progress) options.on_progress(kRunning + kSolving + (1.0 - kRunning - kSolving) * share);
  });
  for (std::size_t m = 0; m < places.size(); ++m) {
    LearnResult::Impl::OfModel& model = impl->models[m];
    for (const LearnedPlace& place : places[m]) {
      LearnedCorrection& one = result.corrections.emplace_back();
      one.model = model.engine->model().path.string();
      one.readers.assign(place.readers.begin(), place.readers.end());
      one.slot = place.key.slot;
      one.texts = place.texts;
      one.tokens = place.tokens;
      double plain = 0.0, corrected = 0.0;
      int answers = 0;
      for (const std::string& reader : place.readers) {
        const auto found = turns.find(reader);
        if (found == turns.end()) continue;
        plain += found->second.plain.log_kl;
        corrected += found->second.corrected.log_kl;
        answers += found->second.plain.answers;
        one.changed_plain += found->second.plain.changed;
        one.changed_corrected += found->second.corrected.changed;
      }
      if (answers > 0) {
        one.kl_plain = std::exp(plain / answers);
        one.kl_corrected = std::exp(corrected / answers);
      }
      if (!place.correction) continue;
      one.rank = place.correction->rank;
      one.bytes = static_cast<std::int64_t>((place.correction->encoder.size() + place.correction->decoder.size()) * 2 +
                                            place.correction->bias.size() * sizeof(float));
      one.left = place.correction->left;
      one.kept =
          checks > 0 ? one.kl_corrected < one.kl_plain && one.changed_corrected <= one.changed_plain : one.left < 1.0;
      if (one.kept) model.kept[place.key] = place.correction;
    }
  }
  if (options.stop.stop_requested()) return std::nullopt;
  result.impl = std::move(impl);
  return result;
}

std::vector<fs::path> LearnResult::save() const {
  return with_resource_errors([&] {
    std::vector<fs::path> written;
    if (!impl) return written;
    for (const Impl::OfModel& model : impl->models) {
      if (model.kept.empty()) continue;
      const Model& of = model.engine->model();
      const auto write = [&](const fs::path& file) {
        Corrections all = model.kept;
        try {
          std::error_code missing;
          if (fs::exists(file, missing)) all.merge(load_corrections(file, of));
        } catch (const ModelError&) {
          // Damaged, or of other weights: the file is replaced.
        }
        save_corrections(file, of, all);
        written.push_back(file);
      };
      try {
        write(corrections_beside(of.path));
      } catch (const fs::filesystem_error&) {
        const fs::path cache = corrections_in_cache(of.fingerprint);
        if (cache.empty()) throw;
        write(cache);
      }
    }
    return written;
  });
}

}  // namespace baton::inline v1::lab
