// SPDX-License-Identifier: Apache-2.0
// One run as an event loop. The loop and every change of state live on the calling thread; workers run tools and
// tokenise; engines call back on their own threads, and the callbacks only post. Messages that must arrive (the end of
// a request, of a preparation, a stop) is posted by tasks that were made before, so that nothing of it gets lost if
// memory runs out: then the run fails, after all that it had begun has ended.
#include "workflows/run/run_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "engine/base/errors.h"
#include "workflows/run/record.h"
#include "workflows/run/run_parts.h"
#include "workflows/run/turn_attempt.h"

namespace baton {

bool ends_by_itself(AttemptPhase phase) {
  return phase == AttemptPhase::preparing || phase == AttemptPhase::generating || phase == AttemptPhase::calling;
}

namespace {

constexpr std::size_t kMaxThreads = 8;
constexpr std::size_t kMaxQuestions = 64;                       // that wait for the host at once
constexpr const char* kEndedForLackOfMemory = "out of memory";  // a std::string of it allocates nothing
constexpr Milliseconds kMaxBackoff{60000};
constexpr int kMaxDoublings = 16;  // times that a pause doubles

bool is_in(const RunSnapshot& run, std::size_t turn, TurnProgress::Phase phase) {
  return run.turns[turn].progress == phase;
}

bool needs_are_over(const Plan& plan, const RunSnapshot& run, std::size_t turn) {
  const std::vector<int>& needs = plan.turns[turn].needs;
  return std::all_of(needs.begin(), needs.end(),
                     [&](int need) { return is_in(run, static_cast<std::size_t>(need), TurnProgress::Phase::over); });
}

/// Running turns that count against max_parallel: not those that wait for the host.
int places_taken(const Plan& plan, const RunSnapshot& run) {
  int count = 0;
  for (std::size_t i = 0; i < run.turns.size(); ++i) {
    const AttemptPhase phase = run.turns[i].attempt;
    const bool asks = phase == AttemptPhase::asked || (phase == AttemptPhase::preparing && plan.turns[i].asks());
    if (is_in(run, i, TurnProgress::Phase::running) && !asks) ++count;
  }
  return count;
}

}  // namespace

bool round_is_over(const Plan& plan, const RunSnapshot& run, int round) {
  for (std::size_t i = 0; i < run.turns.size(); ++i) {
    const bool belongs = plan.turns[i].round <= round && !plan.turns[i].decides;
    if (belongs && !is_in(run, i, TurnProgress::Phase::over)) return false;
  }
  return true;
}

NextStep next_step(const Plan& plan, const RunSnapshot& run, std::size_t turn, std::optional<bool> condition) {
  const PlannedTurn& planned = plan.turns[turn];
  const TopologySpec& topology = plan.spec->topology;
  if (run.ending || !is_in(run, turn, TurnProgress::Phase::waiting) || !needs_are_over(plan, run, turn))
    return NextStep::wait;
  // With `until`, a round starts only when the one before it is over and did not end the rounds.
  const int before = planned.round - 1;
  if (topology.until && !planned.decides && before >= 1 && !run.rounds_ended && run.rounds_judged < before)
    return round_is_over(plan, run, before) ? NextStep::judge_rounds : NextStep::wait;
  if (run.rounds_ended && !planned.decides) return NextStep::skip_after_rounds;
  if (planned.when && !condition) return NextStep::judge_condition;
  if (!condition.value_or(true)) return NextStep::skip_by_condition;
  const int limit = topology.max_parallel;
  const bool full = limit > 0 && !planned.asks() && places_taken(plan, run) >= limit;
  return full ? NextStep::wait_for_a_place : NextStep::start;
}

bool may_submit(const Plan& plan, const RunSnapshot& run, std::size_t turn) {
  if (run.ending || run.turns[turn].attempt != AttemptPhase::held) return false;
  if (!plan.reuse.record) return true;
  for (std::size_t i = 0; i < turn; ++i) {
    if (run.turns[i].attempt == AttemptPhase::preparing && plan.turns[i].tools.empty()) return false;
  }
  return true;
}

bool waits_for_host(const RunSnapshot& run) {
  const auto is_asked = [](const RunSnapshot::Turn& turn) { return turn.attempt == AttemptPhase::asked; };
  const auto works = [&](const RunSnapshot::Turn& turn) {
    return turn.progress == TurnProgress::Phase::running && !is_asked(turn);
  };
  return !run.ending && std::any_of(run.turns.begin(), run.turns.end(), is_asked) &&
         std::none_of(run.turns.begin(), run.turns.end(), works);
}

bool is_over(const RunSnapshot& run) {
  return std::none_of(run.turns.begin(), run.turns.end(), [&](const RunSnapshot::Turn& turn) {
    if (run.ending) return turn.progress == TurnProgress::Phase::running;
    return turn.progress != TurnProgress::Phase::over;
  });
}

AfterFailure after_failure(const PlannedTurn& turn, int attempt, bool may_retry, bool run_is_ending) {
  AfterFailure next;
  if (run_is_ending) return next;
  next.again = may_retry && attempt < turn.retry.attempts;
  if (next.again) {
    const int doublings = std::min(attempt - 1, kMaxDoublings);
    next.pause = std::min(std::min(turn.retry.backoff, kMaxBackoff) * (1 << doublings), kMaxBackoff);
  } else {
    next.fallback = turn.on_error == OnError::fallback;
    next.ends_run = turn.on_error == OnError::fail;
  }
  return next;
}

namespace {

/// Posts a task when a stop is requested. The task is made in advance, since a stop may not throw.
class PostOnStop {
 public:
  void begin(const std::stop_token& stop, std::shared_ptr<TaskQueue> queue, std::unique_ptr<Task> task) {
    task_ = std::move(task);
    callback_.emplace(stop, [this, queue = std::move(queue)] { queue->post(std::move(task_)); });
  }
  /// From here on nothing is posted.
  void end() { callback_.reset(); }

 private:
  std::unique_ptr<Task> task_;
  std::optional<std::stop_callback<std::function<void()>>> callback_;
};

class RunLoop final : public TurnHost {
 public:
  /// The request must outlive the loop.
  explicit RunLoop(const RunRequest& request);

  /// Once. Throws if not even the record of a failed run could be completed.
  RunRecord run();

  void schedule() override;
  void submit_held() override;
  void wake_at(Clock::time_point due) override { wake_ = wake_ ? std::min(*wake_, due) : due; }
  void asking(bool asks) override;
  void close(std::size_t turn, TurnState turn_state) override;
  void attempt_failed(const AttemptFailure& failure, const std::string& message) override;
  const std::string& error() const override { return record_.error; }

 private:
  void end(RunState run_state, const std::string& error, std::optional<ErrorKind> kind);
  void start();
  void start_turns();
  void run_tasks();
  void run_timers();
  void recover(const std::exception& error) noexcept;
  void make_frames();
  const RunSnapshot& snapshot();
  void skip(std::size_t turn, const std::string& reason);
  void suspend();
  void settle();
  void finish();
  void complete_record();

  const Clock::time_point begin_ = Clock::now();
  RunRecord record_;
  std::vector<std::unique_ptr<TurnAttempt>> attempts_;  // one of each turn
  RunSnapshot snapshot_;                                // as of the last call of snapshot()
  std::optional<Clock::time_point> run_due_;            // the run's timeout
  std::optional<Clock::duration> run_left_;             // of it, while it stands still
  int asking_ = 0;                                      // calls that wait for the host
  std::optional<Clock::time_point> wake_;               // no timer is due before
  bool finished_ = false;
  RunParts parts_;  // its workers end before the members above are destroyed
  PostOnStop on_stop_;
};

RunLoop::RunLoop(const RunRequest& request) : parts_(request) {
  for (std::size_t i = 0; i < parts_.plan.turns.size(); ++i)
    attempts_.push_back(std::make_unique<TurnAttempt>(parts_, *this, i));
  snapshot_.turns.resize(parts_.plan.turns.size());
}

RunRecord RunLoop::run() {
  constexpr int kMaxUnexpectedErrors = 8;  // while nothing is left to wait for
  int errors = 0;
  parts_.mailbox->post(make_task([this] { start(); }));
  while (!finished_) {
    try {
      run_tasks();
    } catch (const std::exception& error) {
      recover(error);
      const bool is_waiting =
          std::any_of(attempts_.begin(), attempts_.end(), [](const auto& one) { return ends_by_itself(one->phase()); });
      if (!finished_ && !is_waiting && ++errors > kMaxUnexpectedErrors) throw;
    }
  }
  return std::move(record_);
}

/// Runs tasks and timers until the run is over.
void RunLoop::run_tasks() {
  if (parts_.ending) settle();
  while (!finished_) {
    const std::unique_ptr<Task> task = parts_.mailbox->take(wake_);
    if (task) task->run();
    if (wake_ && Clock::now() >= *wake_) run_timers();
    if (parts_.events.failed() && !parts_.ending) {
      end(RunState::failed, parts_.events.error(), ErrorKind::host);
      settle();
    }
  }
}

void RunLoop::run_timers() {
  const Clock::time_point now = Clock::now();
  wake_.reset();
  if (run_due_ && now >= *run_due_) {
    run_due_.reset();
    end(RunState::timeout, fmt::format("the run took longer than {} ms", parts_.request.timeout.count()), std::nullopt);
    settle();
  }
  for (const std::unique_ptr<TurnAttempt>& attempt : attempts_) {
    if (!attempt->due()) continue;
    if (now < *attempt->due()) {
      wake_at(*attempt->due());
      continue;
    }
    wake_ = now;  // for the timers behind this one, should it throw
    attempt->on_timer();
  }
  if (run_due_) wake_at(*run_due_);
}

void RunLoop::asking(bool asks) {
  asking_ += asks ? 1 : -1;
  if (asks && asking_ == 1 && run_due_) {
    run_left_ = *run_due_ - Clock::now();
    run_due_.reset();
  }
  if (asking_ > 0 || !run_left_) return;
  run_due_ = Clock::now() + *run_left_;
  run_left_.reset();
  wake_at(*run_due_);
}

/// Ends the run because of an unexpected error, and the turns that it left without anything that would end them.
void RunLoop::recover(const std::exception& error) noexcept {
  const auto* engine = dynamic_cast<const EngineError*>(&error);
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      (engine != nullptr &&
                       (engine->kind == EngineError::Kind::memory || engine->kind == EngineError::Kind::over_budget));
  if (!try_to([&] { end(RunState::failed, message_of(error), memory ? ErrorKind::resources : ErrorKind::host); }))
    try_to([&] { end(RunState::failed, kEndedForLackOfMemory, ErrorKind::resources); });
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (ends_by_itself(attempts_[i]->phase())) continue;
    if (parts_.progress.turn(i).phase != TurnProgress::Phase::running) continue;
    try_to([&] { parts_.progress.turn(i).record.error = message_of(error); });
    try_to([&] { attempts_[i]->over(TurnState::failed); });
  }
}

void RunLoop::start() {
  describe_run(record_, parts_.request);
  parts_.tools =
      parts_.request.tools ? parts_.request.tools : std::make_shared<const ToolRegistry>(ToolRegistry::with_builtins());
  on_stop_.begin(parts_.request.stop, parts_.mailbox, make_task([this] {
                   end(RunState::cancelled, "stopped", std::nullopt);
                   settle();
                 }));
  if (parts_.request.timeout.count() > 0) {
    run_due_ = parts_.request.due.value_or(begin_ + parts_.request.timeout);
    wake_at(*run_due_);
  }
  parts_.events.emit(RunStarted{parts_.plan.spec->name, static_cast<int>(parts_.plan.turns.size())});
  for (const Warning& warning : parts_.request.warnings) parts_.events.warn(warning);
  std::set<std::string> said;  // of each agent once
  for (const PlannedTurn& turn : parts_.plan.turns) {
    if (!turn.unread.empty()) parts_.events.warn({turn.unread, WarningCode::output_unread, turn.agent, turn.id});
    for (const std::string& note : turn.unenforced) {
      const std::string message = fmt::format("agent '{}': not enforced while decoding: {}", turn.agent, note);
      if (said.insert(message).second) parts_.events.warn({message, WarningCode::not_enforced, turn.agent});
    }
  }

  std::size_t threads = std::min(std::max<std::size_t>(parts_.plan.turns.size(), 1), kMaxThreads);
  if (const int limit = parts_.plan.spec->topology.max_parallel; limit > 0) {
    threads = std::min(threads, static_cast<std::size_t>(limit));
  }
  const auto asks = [](const PlannedTurn& turn) {  // a question holds its thread
    return turn.asks() || (turn.calls != nullptr && turn.calls->limits().asks());
  };
  threads += std::min<std::size_t>(
      static_cast<std::size_t>(std::count_if(parts_.plan.turns.begin(), parts_.plan.turns.end(), asks)), kMaxQuestions);
  parts_.workers.emplace(threads);
  parts_.mailbox->post(make_task([this] { start_turns(); }));  // behind a stop that came before the run began
}

/// Takes the turns of an earlier run over and starts what is ready.
void RunLoop::start_turns() {
  if (!parts_.request.unready.empty()) end(RunState::failed, parts_.request.unready, ErrorKind::resources);
  for (const AgentFinished& finished : parts_.request.finished) {
    if (parts_.ending) continue;
    restore_turn(parts_.progress, parts_.request, finished);
    close(static_cast<std::size_t>(finished.turn), finished.record.state);
  }
  schedule();
  make_frames();
}

/// Builds the prompts of waiting turns as far as they are known, after the work of the first turns.
void RunLoop::make_frames() {
  if (parts_.ending) return;
  std::vector<std::pair<std::size_t, const ModelText*>> wanted;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (parts_.progress.turn(i).phase == TurnProgress::Phase::waiting && parts_.early.wants(i))
      wanted.emplace_back(i, &parts_.request.engines.at(parts_.plan.turns[i].model)->text());
  }
  if (wanted.empty()) return;
  parts_.workers->post(make_task([this, wanted = std::move(wanted)] {
    for (const auto& [turn, model] : wanted) {
      try_to([&, at = turn, text = model] {  // if it fails, the turn itself will report the error
        const PlannedTurn& planned = parts_.plan.turns[at];
        PromptFrame frame =
            make_frame(planned, text_for(*text, planned, parts_.request.local_seconds), parts_.request.inputs,
                       parts_.memory.of(at).get(), parts_.early.token(), parts_.texts.get());
        parts_.mailbox->post(make_task([this, at, frame = std::move(frame)]() mutable {
          if (!parts_.ending && parts_.progress.turn(at).phase == TurnProgress::Phase::waiting)
            parts_.early.add(at, std::move(frame), parts_.request.engines.at(parts_.plan.turns[at].model),
                             parts_.memory.of(at).get(), parts_.memory.remembers(at));
        }));
      });
    }
  }));
}

const RunSnapshot& RunLoop::snapshot() {
  for (std::size_t i = 0; i < attempts_.size(); ++i)
    snapshot_.turns[i] = {parts_.progress.turn(i).phase, attempts_[i]->phase()};
  snapshot_.ending = parts_.ending;
  return snapshot_;
}

void RunLoop::schedule() {
  // Ascending order is enough for a skipped turn to free the ones behind it: needs are always smaller.
  const RunSnapshot& now = snapshot();
  for (std::size_t i = 0; i < attempts_.size() && !parts_.ending; ++i) {
    if (parts_.progress.turn(i).phase != TurnProgress::Phase::waiting) continue;
    NextStep step = next_step(parts_.plan, now, i);
    if (step == NextStep::judge_rounds) {
      snapshot_.rounds_judged = parts_.plan.turns[i].round - 1;
      snapshot_.rounds_ended = parts_.progress.rounds_end(snapshot_.rounds_judged);
      step = next_step(parts_.plan, now, i);
    }
    if (step == NextStep::judge_condition) step = next_step(parts_.plan, now, i, parts_.progress.may_begin(i));
    if (step == NextStep::skip_after_rounds) skip(i, "the rounds ended early");
    if (step == NextStep::skip_by_condition) skip(i, "its condition does not hold");
    snapshot_.turns[i] = {parts_.progress.turn(i).phase, attempts_[i]->phase()};
    if (step == NextStep::start || step == NextStep::wait_for_a_place) attempts_[i]->set_ready();
    if (step != NextStep::start) continue;
    std::shared_ptr<InferenceEngine> engine;
    if (parts_.plan.turns[i].has_prompt()) engine = parts_.request.engines.at(parts_.plan.turns[i].model);
    parts_.progress.turn(i).phase = TurnProgress::Phase::running;
    attempts_[i]->start(std::move(engine));
    snapshot();  // a turn may end at once, and its end schedules others
  }
  suspend();
  settle();
}

void RunLoop::submit_held() {
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (attempts_[i]->phase() == AttemptPhase::held && may_submit(parts_.plan, snapshot(), i)) attempts_[i]->release();
  }
}

/// Ends a run that can do no more without the host's answers.
void RunLoop::suspend() {
  if (!waits_for_host(snapshot())) return;
  std::string turns, refused;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (attempts_[i]->phase() != AttemptPhase::asked) continue;
    turns += fmt::format("{}'{}'", turns.empty() ? "" : ", ", parts_.plan.turns[i].id);
    if (!parts_.progress.turn(i).refused.empty()) refused += "; " + parts_.progress.turn(i).refused;
  }
  end(RunState::suspended, fmt::format("the answer to {} is missing{}", turns, refused), std::nullopt);
}

void RunLoop::skip(std::size_t turn, const std::string& reason) {
  parts_.progress.turn(turn).record.error = reason;
  close(turn, TurnState::skipped);
}

void RunLoop::close(std::size_t turn, TurnState turn_state) {
  TurnProgress& state = parts_.progress.turn(turn);
  state.phase = TurnProgress::Phase::over;
  state.record.state = turn_state;
  parts_.segments.turn_over(turn);
  parts_.early.over(turn);
  parts_.events.emit(AgentFinished{state.record, static_cast<int>(turn), state.tokens});
}

void RunLoop::attempt_failed(const AttemptFailure& failure, const std::string& message) {
  end(failure.timed_out ? RunState::timeout : RunState::failed, message, failure.kind);
}

/// Starts no new turn, stops the running turns and waits for them. The first reason to end counts.
void RunLoop::end(RunState run_state, const std::string& error, std::optional<ErrorKind> kind) {
  if (parts_.ending) return;
  parts_.ending = true;
  record_.state = run_state;
  record_.error_kind = kind;
  if (!try_to([&] { record_.error = error; })) record_.error = kEndedForLackOfMemory;
  try_to([&] { parts_.early.stop(); });
  for (const std::unique_ptr<TurnAttempt>& attempt : attempts_) attempt->stop_work();
  for (const std::unique_ptr<TurnAttempt>& attempt : attempts_) {
    const AttemptPhase phase = attempt->phase();
    const bool waits = phase == AttemptPhase::pausing || phase == AttemptPhase::held || phase == AttemptPhase::asked;
    if (waits) attempt->over(TurnState::cancelled);
  }
}

void RunLoop::settle() {
  if (!finished_ && is_over(snapshot())) finish();
}

/// May be called again if it threw.
void RunLoop::finish() {
  parts_.ending = true;
  on_stop_.end();  // from here on the run cannot be stopped
  run_due_.reset();
  complete_record();
  parts_.events.emit(RunFinished{record_});
  finished_ = true;
  if (parts_.events.failed()) {
    record_.state = RunState::failed;
    record_.error = parts_.events.error();
    record_.error_kind = ErrorKind::host;
  }
  parts_.memory.keep(record_.state == RunState::ok);
}

void RunLoop::complete_record() {
  record_.agents.clear();
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    TurnProgress& state = parts_.progress.turn(i);
    if (state.phase == TurnProgress::Phase::waiting) skip(i, "not started: " + record_.error);
    record_.agents.push_back(state.record);
  }
  if (std::optional<NamedTexts> outputs = parts_.progress.outputs()) {
    record_.outputs = std::move(*outputs);
  } else if (record_.state == RunState::ok) {
    record_.state = RunState::failed;
    record_.error = "the outputs of the workflow have more than 64 MiB";
  }
  describe_engines(record_, parts_.request);
  record_.warnings = parts_.events.warnings();
  if (parts_.request.servers) record_.servers = parts_.request.servers();
  if (parts_.events.failed()) {
    record_.state = RunState::failed;
    record_.error = parts_.events.error();
    record_.error_kind = ErrorKind::host;
  }
  record_.wall_ms = milliseconds(Clock::now() - begin_);
}

}  // namespace

RunRecord run_plan(const RunRequest& request) {
  if (!request.plan || !request.plan->spec) throw std::invalid_argument("run_plan: no plan");
  const bool over =
      request.stop.stop_requested() || (request.due && Clock::now() >= *request.due) || !request.unready.empty();
  for (const PlannedTurn& turn : request.plan->turns) {
    if (over) break;  // no turn starts
    for (const PlannedTurn* one : {&turn, turn.summary.get()}) {
      if (one == nullptr || one->model.empty()) continue;
      const auto engine = request.engines.find(one->model);
      if (engine == request.engines.end() || !engine->second)
        throw std::invalid_argument(fmt::format("run_plan: no engine for model '{}'", one->model));
    }
  }
  return RunLoop(request).run();
}

}  // namespace baton
