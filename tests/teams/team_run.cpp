// SPDX-License-Identifier: Apache-2.0
#include "tests/teams/team_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/base/hash.h"
#include "tests/teams/team_tools.h"
#include "workflows/run/executor.h"

namespace baton::test {
namespace {

/// Passes all calls on, and keeps what the requests of one run asked for and received.
class Tap final : public InferenceEngine {
 public:
  Tap(std::shared_ptr<InferenceEngine> engine, bool logits) : engine_(std::move(engine)), logits_(logits) {}

  void read_vocabulary(const std::stop_token& stop) override { engine_->read_vocabulary(stop); }
  RequestId submit(GenerationRequest request) override {
    auto answer = std::make_shared<TurnAnswer>();
    for (const PromptPart& part : request.prompt)
      answer->prompt.insert(answer->prompt.end(), part.tokens.begin(), part.tokens.end());
    std::int32_t longest = request.max_tokens;
    for (const auto& choice : request.choices) longest = std::max(longest, static_cast<std::int32_t>(choice.size()));
    {
      const std::lock_guard lock(mutex_);
      most_positions_ = std::max(most_positions_, static_cast<std::int32_t>(answer->prompt.size()) + longest);
    }
    if (logits_) {
      request.callbacks.on_logits = [answer](std::span<const float> logits) {
        answer->logits.push_back(hash_bytes(logits.data(), logits.size_bytes()));
      };
    }
    request.callbacks.on_finished = [this, answer, turn = request.reader,
                                     finished = request.callbacks.on_finished](GenerationResult result) {
      answer->tokens = result.tokens;
      answer->text = result.text;
      answer->reason = result.reason;
      for (const PartUse& use : result.uses) {
        answer->reused_tokens += use.reused_tokens;
        answer->ahead_tokens += use.ahead_tokens;
      }
      {
        const std::lock_guard lock(mutex_);
        answers_[turn].push_back(std::move(*answer));
      }
      finished(std::move(result));
    };
    return engine_->submit(std::move(request));
  }
  void cancel(RequestId id) override { engine_->cancel(id); }
  EarlyId prepare(EarlyPrompt prompt) override { return engine_->prepare(std::move(prompt)); }
  void update(EarlyId id, std::vector<EarlyPart> parts, bool complete) override {
    engine_->update(id, std::move(parts), complete);
  }
  void forget(EarlyId id) override { engine_->forget(id); }
  std::shared_ptr<const Segment> exported_kv(const SegmentHandle& handle) const override {
    return engine_->exported_kv(handle);
  }
  const ModelText& text() const override { return engine_->text(); }
  const EngineInfo& info() const override { return engine_->info(); }
  EngineStats stats() const override { return engine_->stats(); }

  std::map<std::string, std::vector<TurnAnswer>> take() {
    const std::lock_guard lock(mutex_);
    return std::move(answers_);
  }
  std::int32_t most_positions() const { return most_positions_; }

 private:
  std::shared_ptr<InferenceEngine> engine_;
  bool logits_;
  std::mutex mutex_;
  std::map<std::string, std::vector<TurnAnswer>> answers_;
  std::int32_t most_positions_ = 0;
};

template <typename Value>
std::string where(const char* what, const std::vector<Value>& expected, const std::vector<Value>& found) {
  const auto [a, b] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  if (a == expected.end() && b == found.end()) return {};
  const auto shown = [](const auto& at, const auto& end) { return at == end ? "the end" : fmt::format("{}", *at); };
  return fmt::format("{} {} of {}: expected {}, found {} (of {})", what, a - expected.begin(), expected.size(),
                     shown(a, expected.end()), shown(b, found.end()), found.size());
}

std::string difference(const TurnAnswer& expected, const TurnAnswer& found) {
  if (std::string prompt = where("prompt token", expected.prompt, found.prompt); !prompt.empty()) return prompt;
  if (std::string token = where("token", expected.tokens, found.tokens); !token.empty()) return token;
  if (std::string logits = where("hash of the logits of token", expected.logits, found.logits); !logits.empty())
    return logits;
  if (expected.text != found.text) return fmt::format("text: expected '{}', found '{}'", expected.text, found.text);
  if (expected.reason == found.reason) return {};
  return fmt::format("finish reason: expected {}, found {}", name_of(expected.reason), name_of(found.reason));
}

/// What a record says of a turn and does not depend on time or on how KV was obtained.
std::string shown(const AgentRecord& turn) {
  return fmt::format("{} in round {}: {}, {} attempts, {} prompt tokens, {} tokens, {}{}, output '{}', answer '{}', {}",
                     turn.agent, turn.round, name_of(turn.state), turn.attempts, turn.prompt_tokens, turn.output_tokens,
                     name_of(turn.finish_reason), turn.truncated ? ", truncated" : "", turn.output, turn.answer,
                     turn.error);
}

}  // namespace

TeamAnswers run_team(const std::shared_ptr<InferenceEngine>& engine, const TeamRun& run) {
  const auto tap = std::make_shared<Tap>(engine, run.logits);
  TeamAnswers answers;
  RunRequest request;
  request.plan = run.plan;
  request.engines = {{"main", tap}};
  request.tools = std::make_shared<const ToolRegistry>(team_tools());
  request.inputs = complete_inputs(*run.plan->spec, run.inputs);
  request.seed = run.seed;
  request.forced = run.forced;
  request.finished = run.finished;
  request.stop = run.stop;
  request.timeout = std::chrono::minutes(5);  // a run that hangs is a difference, too
  request.on_event = [&](const Event& event) {
    ++answers.events;
    if (run.on_event) run.on_event(event);
  };
  if (run.memory != nullptr) {
    request.memory = *run.memory;
    request.on_memory = [&](const SessionMemory* memory) {
      if (memory != nullptr) *run.memory = *memory;
    };
  }
  answers.record = run_plan(request);
  answers.answers = tap->take();
  for (const PlannedTurn& turn : run.plan->turns) answers.turns.push_back(turn.id);
  answers.most_positions = tap->most_positions();
  return answers;
}

std::string first_difference(const TeamAnswers& expected, const TeamAnswers& found,
                             const std::map<std::string, std::vector<TokenId>>& forced) {
  for (std::size_t i = 0; i < expected.turns.size(); ++i) {
    const std::string& turn = expected.turns[i];
    if (forced.count(turn) != 0) continue;
    const auto a = expected.answers.find(turn), b = found.answers.find(turn);
    const std::size_t before = a == expected.answers.end() ? 0 : a->second.size();
    const std::size_t after = b == found.answers.end() ? 0 : b->second.size();
    for (std::size_t attempt = 0; attempt < std::min(before, after); ++attempt) {
      const std::string one = difference(a->second[attempt], b->second[attempt]);
      if (!one.empty()) return fmt::format("turn {}, attempt {}, {}", turn, attempt + 1, one);
    }
    const std::string recorded = shown(expected.record.agents.at(i));
    if (before != after)
      return fmt::format("turn {}: expected {} attempts, found {}: {}", turn, before, after,
                         shown(found.record.agents.at(i)));
    if (const std::string other = shown(found.record.agents.at(i)); recorded != other)
      return fmt::format("turn {}: expected {}; found {}", turn, recorded, other);
  }
  if (expected.record.state != found.record.state)
    return fmt::format("state: expected {}, found {} ({})", name_of(expected.record.state), name_of(found.record.state),
                       found.record.error);
  if (!std::equal(expected.record.outputs.begin(), expected.record.outputs.end(), found.record.outputs.begin(),
                  found.record.outputs.end()))
    return "the outputs of the run differ";
  return {};
}

}  // namespace baton::test
