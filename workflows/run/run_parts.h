// SPDX-License-Identifier: Apache-2.0
// The parts that the loop of a run and its turns share: the queue and the workers, events, segments that are handed
// over, and what agents remember.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agents/tools/tool.h"
#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/engine.h"
#include "workflows/plan/plan.h"
#include "workflows/run/early_turns.h"
#include "workflows/run/executor.h"
#include "workflows/run/run_progress.h"
#include "workflows/run/turn.h"

namespace baton {

class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;

 private:
  friend class TaskQueue;
  std::unique_ptr<Task> next_;
};

/// Returns a task that calls `function` once.
template <class Function>
std::unique_ptr<Task> make_task(Function function) {
  struct Call final : Task {
    explicit Call(Function made) : function(std::move(made)) {}
    void run() override { function(); }
    Function function;
  };
  return std::make_unique<Call>(std::move(function));
}

/// Threads: any.
class TaskQueue {
 public:
  TaskQueue() = default;
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Appends a task; null: does nothing.
  void post(std::unique_ptr<Task> task) noexcept;

  /// Removes the first task. If there is none, waits for one: until `until` (std::nullopt: without end) or close().
  /// Returns null when there is still none.
  std::unique_ptr<Task> take(std::optional<Clock::time_point> until = {});

  /// From now on take() returns null instead of waiting.
  void close() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Task> first_;
  Task* last_ = nullptr;  // null: empty
  bool closed_ = false;
};

class Workers {
 public:
  /// Starts `threads` >= 1 threads, or as many of them as the system starts. Throws EngineError (memory) when it starts
  /// none.
  explicit Workers(std::size_t threads);
  /// Waits for the tasks that have begun, and drops the others.
  ~Workers();

  /// The task must not throw.
  void post(std::unique_ptr<Task> task) noexcept { tasks_.post(std::move(task)); }

 private:
  void stop() noexcept;

  TaskQueue tasks_;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

// The parts of a run that its loop and its turns share: events, segments that are handed over, what agents remember.

/// The run's events. A callback that throws is not called again; the run then ends after the current task. The run's
/// thread only.
class RunEvents {
 public:
  /// `callback` must outlive it; it may be empty.
  explicit RunEvents(const EventCallback& callback) : callback_(callback) {}

  void emit(const Event& event);
  /// Tells the warning, and notes it for the record.
  void warn(Warning warning);
  /// Of a turn; `what` follows its name in the message.
  void warn(const PlannedTurn& turn, WarningCode code, const std::string& what);
  /// For the record of the run.
  const std::vector<WarningRecord>& warnings() const { return warnings_; }

  /// True if the callback threw; error() says what.
  bool failed() const { return failed_; }
  const std::string& error() const { return error_; }

 private:
  const EventCallback& callback_;
  bool failed_ = false;
  std::string error_;
  std::vector<WarningRecord> warnings_;
};

/// The segments of one run: their authors and their remaining readers. A segment is released when its last reader is
/// over. The run's thread only.
class RunSegments {
 public:
  explicit RunSegments(const Plan& plan) : plan_(plan), over_(plan.turns.size(), false) {}

  /// Assigns each placeholder of the turn's prompt its segment, if there is one, or that of another model if the method
  /// reads across models, and marks the parts that become segments.
  void attach(std::size_t turn, const InferenceEngine* engine, std::vector<PromptPart>& prompt) const;

  /// How many later turns will read the turn's output.
  std::int64_t output_readers(std::size_t turn) const {
    return static_cast<std::int64_t>(readers_of_output(turn).size());
  }

  /// True if some of those turns run on other models that may read the output.
  bool export_output(std::size_t turn) const { return read_by_other_models(turn, readers_of_output(turn)); }

  /// Takes the segments that the engine made of a prompt (with tokens `prompt`) and of its answer, whose ids are
  /// `answer`.
  void take(std::size_t turn, const InferenceEngine* engine, const std::vector<PromptPart>& prompt,
            const GenerationResult& result, const TokenText& answer);

  /// The turn is over and reads no more segments.
  void turn_over(std::size_t turn);

 private:
  struct Entry {
    const InferenceEngine* engine = nullptr;
    TokenText text;
    SegmentHandle handle;
    std::set<std::size_t> readers;  // turns
  };

  bool read_by_other_models(std::size_t turn, const std::set<std::size_t>& readers) const;
  void attach_portable(const InferenceEngine* engine, PromptPart& part) const;
  std::set<std::size_t> readers_of(const SlotSource& source, std::size_t but) const;
  std::set<std::size_t> readers_of_output(std::size_t turn) const;
  /// The entry of a text, or nullptr. Most texts are found by identity; others by content, whatever their names.
  const Entry* find(const InferenceEngine* engine, const TokenText& text) const;
  void keep(const InferenceEngine* engine, const TokenText& text, SegmentHandle handle, std::set<std::size_t> readers);

  const Plan& plan_;
  std::vector<bool> over_;
  std::vector<Entry> entries_;  // one for each text and engine
};

/// What the agents of a session remember: the conversation of the last turn of each agent in a run. Every turn of an
/// agent continues what the agent remembered when the run began.
class RunMemory {
 public:
  /// The references must outlive it.
  RunMemory(const RunRequest& request, const RunProgress& progress, std::shared_ptr<TextIds> texts);

  /// True if the turn's conversation is remembered after the run. Any thread.
  bool remembers(std::size_t turn) const;
  /// What the turn's agent remembers; null: nothing. Any thread.
  std::shared_ptr<const Conversation> of(std::size_t turn) const;

  /// The record of a turn whose prompt holds the last `kept` exchanges of what its agent remembers.
  std::optional<HistoryRecord> history(std::size_t turn, std::size_t kept) const;

  /// Notes the conversation of a turn. `prompt`: that of its last generation; `bare`: the same without thinking.
  void remember(std::size_t turn, std::size_t kept, const std::vector<PromptPart>& prompt,
                const std::vector<PromptPart>& bare, const GenerationResult& answer, const TokenText& ids,
                const std::shared_ptr<const Tokenizer>& tokenizer);

  /// Hands what is remembered over to the session, or nothing if the run did not end well.
  void keep(bool ended_well) noexcept;

 private:
  const RunRequest& request_;
  const Plan& plan_;
  const RunProgress& progress_;
  const std::shared_ptr<TextIds> texts_;
  std::vector<std::shared_ptr<const Conversation>> remembered_;  // one for each turn; null: nothing
};

/// The state that the loop and the turns of one run share. The run's thread only, unless a member says otherwise.
struct RunParts {
  /// The request must outlive it.
  explicit RunParts(const RunRequest& run_request);

  const RunRequest& request;
  const Plan& plan;
  const std::uint64_t number;  // GenerationRequest::run
  /// The part of a run that engines' threads hold. A last post may still be returning when the run has been destroyed,
  /// so they share the queue but neither the run nor the engines: the last reference to an engine must not be released
  /// on the engine's thread.
  const std::shared_ptr<TaskQueue> mailbox = std::make_shared<TaskQueue>();
  const std::shared_ptr<TextIds> texts;  // those of the session, if the run continues one
  RunProgress progress;
  RunSegments segments;
  EarlyTurns early;
  RunMemory memory;
  RunEvents events;
  std::shared_ptr<const ToolRegistry> tools;
  std::vector<EarlierCall> earlier_calls;  // those of RunRequest::calls that no call of this run stands for yet
  bool ending = false;                     // no new turn starts
  std::optional<Workers> workers;          // last: they end before the members above are destroyed
};

/// Calls `make` on a worker, then posts `reply`, which has the result. What `make` throws is the result's error.
template <typename Input>
void run_on_worker(RunParts& run, PreparedTurn (*make)(const Input&), Input input, std::shared_ptr<PreparedTurn> result,
                   std::unique_ptr<Task> reply) {
  run.workers->post(
      make_task([mailbox = run.mailbox, make, input = std::move(input), result, reply = std::move(reply)]() mutable {
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

}  // namespace baton
