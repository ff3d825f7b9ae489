// SPDX-License-Identifier: Apache-2.0
// TurnAttempt: one turn of a run, attempt after attempt: tools and prompt, the engine, calls of the model, then an
// output, another attempt, or a failure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "workflows/run/model_calls.h"
#include "workflows/run/record.h"
#include "workflows/run/run_loop.h"
#include "workflows/run/run_parts.h"
#include "workflows/run/turn.h"
#include "workflows/run/turn_thinking.h"

namespace baton {

/// What a turn asks of its run. The run's thread only.
class TurnHost {
 public:
  virtual ~TurnHost() = default;
  /// Starts what is ready, and ends the run if nothing is left to do.
  virtual void schedule() = 0;
  /// Submits the prompts that waited for others.
  virtual void submit_held() = 0;
  /// Calls TurnAttempt::on_timer at `due`.
  virtual void wake_at(Clock::time_point due) = 0;
  /// The host takes its time for an answer, and then no more: the run's time stands still.
  virtual void asking(bool asks) = 0;
  /// The turn is over.
  virtual void close(std::size_t turn, TurnState state) = 0;
  /// Ends the run because of a turn that failed: no new turn starts, and the running ones stop.
  virtual void attempt_failed(const AttemptFailure& failure, const std::string& message) = 0;
  /// Why the run ends; empty if it does not.
  virtual const std::string& error() const = 0;
};

/// The time of one attempt, and what stops its work.
class AttemptLimit {
 public:
  void begin() {
    why_.clear();
    stop_ = {};
  }
  void set_due(Clock::time_point due) { due_ = due; }
  void clear_due() { due_.reset(); }
  /// The time stands still while the host takes its own.
  void pause() {
    left_ = due_ ? std::optional(*due_ - Clock::now()) : std::nullopt;
    due_.reset();
  }
  void go_on() {
    if (left_) due_ = Clock::now() + *left_;
    left_.reset();
  }
  /// The end of the attempt's time, or of the pause before the next one.
  const std::optional<Clock::time_point>& due() const { return due_; }

  void cut_off(std::string why) {
    why_ = std::move(why);
    stop_.request_stop();
  }
  /// Why the attempt was cut off; empty if it was not.
  const std::string& why() const { return why_; }

  void request_stop() { stop_.request_stop(); }
  /// Stops tools, rendering, tokenizing and reading the vocabulary.
  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::optional<Clock::time_point> due_;
  std::optional<Clock::duration> left_;
  std::string why_;
  std::stop_source stop_;
};

/// The calls of a model in one attempt. Its answer is calls, they run on a worker, and the same conversation goes on
/// behind their results: the next prompt is the prompt before, the ids that were decoded, and the results, so that the
/// engine finds the KV of all but the results.
class TurnCalls {
 public:
  /// Finds the calls in an answer and what their tools need. Nothing if it has none, or if no more are allowed.
  std::optional<CallsInput> read(const GenerationResult& result, const PlannedTurn& turn,
                                 const std::shared_ptr<InferenceEngine>& engine, const ToolFormat& format,
                                 const ToolRegistry& tools, const std::stop_token& stop) const;
  /// Notes a generation that ended in `calls`. `prompt`: the generation's; `record`: that of the turn so far.
  void add(const GenerationResult& result, const CallsInput& calls, std::vector<PromptPart> prompt,
           const AgentRecord& record);
  /// Notes what the tools returned: the next prompt ends with it.
  void add_results(PreparedTurn called);
  /// The results in the prompt that may be left out, the oldest first.
  std::vector<EarlierResults> earlier() const;

  /// Generations that ended in calls.
  int generations() const { return generations_; }
  /// The prompt of the next generation, which the caller may take, and its other inputs.
  std::vector<PromptPart>& prompt() { return prompt_; }
  const ContextHandle& context() const { return context_; }
  const std::shared_ptr<const Grammar>& constraint() const { return constraint_; }
  /// The turn's record with the sums of the generations so far.
  const AgentRecord& record() const { return record_; }
  /// That of the generation that runs.
  TurnThinking& thinking() { return thinking_; }
  /// The calls that run.
  std::unique_ptr<CallRound>& round() { return round_; }

 private:
  void leave_out(std::vector<std::vector<PromptPart>>& shorter);

  TurnThinking thinking_;
  std::unique_ptr<CallRound> round_;
  int generations_ = 0;
  int calls_ = 0;
  std::map<std::pair<std::string, std::string>, ToolResult> made_;  // results, by tool and arguments
  /// The results of an output's calls, in the prompt.
  struct Results {
    std::size_t begin = 0, end = 0;  // parts
    EarlierResults what;
    bool left_out = false;
  };
  std::vector<Results> results_;
  PieceStart start_;  // of what follows the last output
  std::vector<PromptPart> prompt_;
  ContextHandle context_;                      // the context of the generation before
  std::shared_ptr<const Grammar> constraint_;  // for the next generation
  AgentRecord record_;
};

/// The run's thread only. Engines and workers post to the run's queue, so it must live until they have: see
/// ends_by_itself.
class TurnAttempt {
 public:
  /// All must outlive it.
  TurnAttempt(RunParts& run, TurnHost& host, std::size_t turn);

  AttemptPhase phase() const { return phase_; }
  /// The next moment at which on_timer is to be called.
  const std::optional<Clock::time_point>& due() const { return limit_.due(); }

  /// Notes that the turn's inputs are complete, the first time.
  void set_ready();
  /// Starts the next attempt. `engine`: of the turn's model; null if it has no prompt.
  void start(std::shared_ptr<InferenceEngine> engine);
  /// Gives the engine the prompt that was held.
  void release();
  /// Its time is up: cuts the attempt off, or starts the next one after a pause.
  void on_timer();
  /// Stops the work of the attempt, which then ends by itself.
  void stop_work();
  /// Ends a turn that has begun.
  void over(TurnState state);

 private:
  void advance();
  ToolInput tool_input(const ToolSpec& spec);
  void prepare();
  void on_prepared(PreparedTurn prepared);
  void submit();
  void submitted();
  GenerationCallbacks callbacks();
  void on_prefilled(Clock::time_point when, KvRecord kv, const std::vector<PartUse>& uses);
  void on_finished(GenerationResult result);
  void take_thinking(const GenerationResult& result);
  bool call_tools(const GenerationResult& result);
  void on_called(PreparedTurn called);
  void report(const ToolOutcome& tool, int call);
  void accept(GenerationResult result, const TokenText& answer, const std::vector<PromptPart>& prompt);
  bool fits(GenerationResult& result);
  void fail(const AttemptFailure& failure);

  RunParts& run_;
  TurnHost& host_;
  const std::size_t turn_;
  const PlannedTurn& planned_;
  TurnProgress& state_;
  AttemptPhase phase_ = AttemptPhase::idle;
  int number_ = 0;  // number of the attempt, from 1
  std::shared_ptr<InferenceEngine> engine_;
  std::vector<FailedOutput> failed_;      // in the attempts before
  std::optional<PreparedTurn> prepared_;  // the prompt is kept while another attempt may need it
  TurnCalls calls_;
  std::vector<PromptPart> submitted_;  // without what the engine makes of it; the ids find segments again
  RequestId request_ = 0;
  TurnTimes times_;
  AttemptLimit limit_;
};

}  // namespace baton
