// SPDX-License-Identifier: Apache-2.0
// One run as an event loop. The loop and every change of state live on the calling thread; workers run tools and
// tokenise; engines call back on their own threads, and the callbacks only post. What must arrive (the end of a
// request, of a preparation, a stop) is posted by tasks that were made before, so that nothing of it gets lost where
// memory runs out: then the run fails, after all that it had begun has ended.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/errors.h"
#include "workflows/run/early_turns.h"
#include "workflows/run/executor.h"
#include "workflows/run/hand_over.h"
#include "workflows/run/run_progress.h"
#include "workflows/run/turn.h"
#include "workflows/run/turn_record.h"
#include "workflows/run/workers.h"

namespace baton {

class RunLoop {
 public:
  /// The request must outlive the loop.
  explicit RunLoop(const RunRequest& request);

  /// Once. Throws where not even the record of a failed run could be completed.
  RunRecord run();

 private:
  /// What a model that calls tools has written so far in an attempt.
  struct CallLoop {
    int generations = 0;                                             // that ended in calls
    int calls = 0;                                                   // that were made
    std::map<std::pair<std::string, std::string>, ToolResult> made;  // results, by tool and arguments
    std::vector<PromptPart> prompt;                                  // of the next generation
    ContextHandle context;                                           // of the generation before
    std::shared_ptr<const Grammar> constraint;                       // of the next generation
    AgentRecord record;                                              // sums of the generations
  };

  /// The state of a running turn.
  struct Attempt {
    /// held: the prompt waits for those of turns before it, so that the engine gets them in the order of the plan.
    /// asked: the host has no answer yet.
    enum class Phase : std::uint8_t { idle, preparing, held, generating, calling, pausing, asked };
    Phase phase = Phase::idle;
    int number = 0;  // from 1
    std::shared_ptr<InferenceEngine> engine;
    std::vector<FailedOutput> failed;  // of the attempts before
    bool prepared = false;             // the prompt is known, and may be empty
    std::vector<PromptPart> prompt;    // kept while another attempt may need it
    std::vector<std::vector<TokenId>> choices;
    ToolFormat format;                          // of calls
    std::shared_ptr<const Grammar> constraint;  // of the first generation
    CallLoop calls;
    std::shared_ptr<const Conversation> memory;      // what the agent remembers; null: nothing
    std::size_t kept = 0;                            // exchanges of it in the prompt
    std::shared_ptr<const Conversation> remembered;  // with this turn
    std::vector<PromptPart> submitted;               // without what the engine makes of it; the ids find segments again
    RequestId request = 0;
    TurnTimes times;
    std::optional<Clock::time_point> due;  // its timeout, or the end of the pause before the next one
    std::shared_ptr<const Tool> question;  // of a step that asks
    std::stop_source stop;                 // of its tools, rendering, tokenizing and reading the vocabulary
    std::string cut;                       // why it was cut off: its timeout
  };

  struct Failure {
    std::string error;
    ErrorKind kind = ErrorKind::agent;
    bool may_retry = true;
    bool timed_out = false;
  };

  const PlannedTurn& planned(std::size_t turn) const { return plan_.turns[turn]; }

  // executor_loop.cpp: the run
  void start();
  /// Runs tasks and timers until the run is over.
  void run_tasks();
  void run_timers();
  void wake_at(Clock::time_point due);
  /// Ends the run because of an unexpected error, and the turns that it left without anything that would end them.
  void recover(const std::exception& error) noexcept;
  bool is_waiting() const;  // for an engine or a worker
  void make_frames();
  void schedule();
  bool round_may_start(std::size_t turn);
  void skip(std::size_t turn, const std::string& reason);
  void close(std::size_t turn, TurnState turn_state);
  void end(RunState run_state, const std::string& error, std::optional<ErrorKind> kind = {});
  void complete_record();
  void settle();
  void finish();
  void describe();
  void describe_engines();
  void emit(const Event& event);
  void warn(std::string message) { emit(Warning{std::move(message)}); }

  // executor_attempt.cpp: the attempts of one turn
  void start_attempt(std::size_t turn);
  void advance(std::size_t turn);
  ToolInput tool_input(std::size_t turn, const ToolSpec& spec) const;
  void prepare(std::size_t turn);
  void on_prepared(std::size_t turn, PreparedTurn prepared);
  bool follows_preparing(std::size_t turn) const;
  void submit_held();
  void submit(std::size_t turn);
  void submitted(std::size_t turn);
  GenerationCallbacks callbacks(std::size_t turn);
  void on_prefilled(std::size_t turn, Clock::time_point when, KvRecord kv, const std::vector<PartUse>& uses);
  void on_finished(std::size_t turn, GenerationResult result);
  /// `prompt`: that of the last generation.
  void accept(std::size_t turn, GenerationResult result, const std::vector<PromptPart>& prompt);
  void fail_attempt(std::size_t turn, Failure failure);
  void cut_off(std::size_t turn);

  /// Calls `make` on a worker, then posts `reply`, which has the result.
  template <typename Input>
  void on_worker(PreparedTurn (*make)(const Input&), Input input, std::shared_ptr<PreparedTurn> result,
                 std::unique_ptr<Task> reply) {
    workers_->post(
        make_task([mailbox = mailbox_, make, input = std::move(input), result, reply = std::move(reply)]() mutable {
          try {
            *result = make(input);
          } catch (const std::exception& error) {
            if (!try_to([&] { result->error = message_of(error); })) result->error = "out of memory";
          }
          input = {};
          result.reset();
          mailbox->post(std::move(reply));
        }));
  }

  // executor_memory.cpp: what agents remember between the runs of a session
  bool remembers(std::size_t turn) const;
  std::shared_ptr<const Conversation> memory_of(std::size_t turn) const;
  std::optional<HistoryRecord> history_of(std::size_t turn);
  void remember(std::size_t turn, const std::vector<PromptPart>& prompt, const GenerationResult& answer);
  void keep_memory() noexcept;
  /// Takes over a turn of an earlier run.
  void restore(const AgentFinished& finished);

  // executor_ask.cpp: steps that wait for the host
  ToolInput question(std::size_t turn, const ToolSpec& spec);
  int asked() const;
  int waiting_for_host() const;
  void suspend();

  // executor_calls.cpp: tools that the model calls
  /// False when the result is an answer, without calls.
  bool call_tools(std::size_t turn, const GenerationResult& result);
  void on_called(std::size_t turn, PreparedTurn called);
  void report(std::size_t turn, const std::vector<ToolOutcome>& tools);
  void turn_over(std::size_t turn, TurnState turn_state);

  const RunRequest& request_;
  const Plan& plan_;
  /// The part of a run that engines' threads hold. A last post may still be returning when the run has been destroyed,
  /// so they share the queue but neither the run nor the engines: the last reference to an engine must not be released
  /// on the engine's thread.
  const std::shared_ptr<TaskQueue> mailbox_ = std::make_shared<TaskQueue>();
  const Clock::time_point begin_ = Clock::now();
  const std::uint64_t number_;  // GenerationRequest::run

  RunProgress state_;
  RunSegments hand_over_;
  EarlyTurns early_;
  RunRecord record_;
  std::vector<std::unique_ptr<Attempt>> attempts_;  // one of each turn
  std::shared_ptr<const ToolRegistry> tools_;
  std::optional<Clock::time_point> run_due_;  // the run's timeout
  std::optional<Clock::time_point> wake_;     // no timer is due before
  std::unique_ptr<Task> stop_task_;           // made in advance: a stop may not throw
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
  std::stop_source frames_;         // of make_frames
  std::optional<Workers> workers_;  // end before the members above are destroyed

  int running_ = 0;         // turns that have begun and are not over
  int rounds_checked_ = 0;  // `until` was asked after these rounds
  bool stopped_early_ = false;
  bool ending_ = false;  // no new turn starts
  bool finished_ = false;
  bool callback_failed_ = false;
  std::string callback_error_;
};

}  // namespace baton
