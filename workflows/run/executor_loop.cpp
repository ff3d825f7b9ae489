// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/executor_loop.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>

#include "engine/base/errors.h"

namespace baton {
namespace {

constexpr std::size_t kMaxThreads = 8;
std::atomic<std::uint64_t> runs{0};                 // of this process
constexpr const char* kNoMemory = "out of memory";  // so short that a std::string of it allocates nothing

/// "2026-01-31T12:00:00.250Z".
std::string utc_now() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const std::time_t second = std::chrono::system_clock::to_time_t(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(second), now.time_since_epoch().count() % 1000);
}

}  // namespace

RunLoop::RunLoop(const RunRequest& request)
    : request_(request),
      plan_(*request.plan),
      number_(++runs),
      state_(plan_, request.inputs),
      hand_over_(plan_),
      early_(plan_, state_) {
  for (std::size_t i = 0; i < state_.size(); ++i) attempts_.push_back(std::make_unique<Attempt>());
}

RunRecord RunLoop::run() {
  constexpr int kMaxErrors = 8;  // while nothing is left to wait for
  int errors = 0;
  mailbox_->post(make_task([this] { start(); }));
  while (!finished_) {
    try {
      run_tasks();
    } catch (const std::exception& error) {
      recover(error);
      if (!finished_ && !is_waiting() && ++errors > kMaxErrors) throw;
    }
  }
  return std::move(record_);
}

void RunLoop::run_tasks() {
  if (ending_) settle();
  while (!finished_) {
    const std::unique_ptr<Task> task = mailbox_->take(wake_);
    if (task) task->run();
    if (wake_ && Clock::now() >= *wake_) run_timers();
    if (callback_failed_ && !ending_) {
      end(RunState::failed, callback_error_, ErrorKind::host);
      settle();
    }
  }
}

void RunLoop::wake_at(Clock::time_point due) { wake_ = wake_ ? std::min(*wake_, due) : due; }

void RunLoop::run_timers() {
  const Clock::time_point now = Clock::now();
  wake_.reset();
  if (run_due_ && now >= *run_due_) {
    run_due_.reset();
    end(RunState::timeout, fmt::format("the run took longer than {} ms", request_.timeout.count()));
    settle();
  }
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    Attempt& attempt = *attempts_[i];
    if (!attempt.due) continue;
    if (now < *attempt.due) {
      wake_at(*attempt.due);
      continue;
    }
    attempt.due.reset();
    wake_ = now;  // for the timers behind this one, should it throw
    if (attempt.phase != Attempt::Phase::pausing) {
      cut_off(i);
    } else if (ending_) {
      turn_over(i, TurnState::cancelled);
    } else {
      attempt.phase = Attempt::Phase::idle;
      start_attempt(i);
      schedule();
    }
  }
  if (run_due_) wake_at(*run_due_);
}

bool RunLoop::is_waiting() const {
  return std::any_of(attempts_.begin(), attempts_.end(), [](const auto& one) {
    return one->phase == Attempt::Phase::preparing || one->phase == Attempt::Phase::generating ||
           one->phase == Attempt::Phase::calling;
  });
}

void RunLoop::recover(const std::exception& error) noexcept {
  const auto* engine = dynamic_cast<const EngineError*>(&error);
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      (engine != nullptr && engine->kind == EngineError::Kind::memory);
  if (!try_to([&] { end(RunState::failed, message_of(error), memory ? ErrorKind::resources : ErrorKind::host); }))
    try_to([&] { end(RunState::failed, kNoMemory, ErrorKind::resources); });
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    const Attempt::Phase phase = attempts_[i]->phase;
    const bool ends =
        phase == Attempt::Phase::preparing || phase == Attempt::Phase::generating || phase == Attempt::Phase::calling;
    if (ends) continue;  // by itself
    if (state_.turn(i).phase != TurnProgress::Phase::running) continue;
    try_to([&] { state_.turn(i).record.error = message_of(error); });
    try_to([&] { turn_over(i, TurnState::failed); });
  }
}

void RunLoop::start() {
  describe();
  tools_ = request_.tools ? request_.tools : std::make_shared<const ToolRegistry>(ToolRegistry::with_builtins());
  stop_task_ = make_task([this] {
    end(RunState::cancelled, "stopped");
    settle();
  });
  on_stop_.emplace(request_.stop, [this] { mailbox_->post(std::move(stop_task_)); });
  if (request_.timeout.count() > 0) {
    run_due_ = request_.due.value_or(begin_ + request_.timeout);
    wake_at(*run_due_);
  }
  emit(RunStarted{plan_.spec->name, static_cast<int>(plan_.turns.size())});
  for (const std::string& message : request_.warnings) warn(message);

  std::size_t threads = std::min(std::max<std::size_t>(plan_.turns.size(), 1), kMaxThreads);
  if (const int limit = plan_.spec->topology.max_parallel; limit > 0) {
    threads = std::min(threads, static_cast<std::size_t>(limit));
  }
  const auto ask = [](const PlannedTurn& turn) { return turn.asks(); };  // they hold their threads
  threads += std::min<std::size_t>(static_cast<std::size_t>(std::count_if(plan_.turns.begin(), plan_.turns.end(), ask)),
                                   kMaxThreads);
  workers_.emplace(threads);
  mailbox_->post(make_task([this] {  // behind a stop that was asked for before the run began
    if (!request_.unready.empty()) end(RunState::failed, request_.unready, ErrorKind::resources);
    for (const AgentFinished& finished : request_.finished) {
      if (!ending_) restore(finished);
    }
    schedule();
    make_frames();
  }));
}

/// Builds the prompts of waiting turns as far as they are known, after the work of the first turns.
void RunLoop::make_frames() {
  if (ending_) return;
  std::vector<std::pair<std::size_t, const ModelText*>> wanted;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    if (state_.turn(i).phase == TurnProgress::Phase::waiting && early_.wants(i))
      wanted.emplace_back(i, &request_.engines.at(planned(i).model)->text());
  }
  if (wanted.empty()) return;
  workers_->post(make_task([this, wanted = std::move(wanted)] {
    for (const auto& [turn, model] : wanted) {
      try_to([&, at = turn, text = model] {  // where it fails, the turn itself will report the error
        PromptFrame frame = make_frame(planned(at), *text, request_.inputs, memory_of(at).get(), frames_.get_token());
        mailbox_->post(make_task([this, at, frame = std::move(frame)]() mutable {
          if (!ending_ && state_.turn(at).phase == TurnProgress::Phase::waiting)
            early_.add(at, std::move(frame), request_.engines.at(planned(at).model), memory_of(at).get());
        }));
      });
    }
  }));
}

void RunLoop::schedule() {
  // Ascending order is enough for a skipped turn to free the ones behind it: needs are always smaller.
  const int limit = plan_.spec->topology.max_parallel;
  for (std::size_t i = 0; i < state_.size() && !ending_; ++i) {
    const PlannedTurn& turn = planned(i);
    if (state_.turn(i).phase != TurnProgress::Phase::waiting || !state_.needs_over(i) || !round_may_start(i)) continue;
    if (stopped_early_ && !turn.decides) {
      skip(i, "the rounds ended early");
      continue;
    }
    if (!state_.may_begin(i)) {
      skip(i, "its condition does not hold");
      continue;
    }
    Attempt& attempt = *attempts_[i];
    if (attempt.times.ready == Clock::time_point{}) attempt.times.ready = Clock::now();
    if (limit > 0 && running_ - waiting_for_host() >= limit && !turn.asks()) continue;
    if (turn.has_prompt()) attempt.engine = request_.engines.at(turn.model);
    state_.turn(i).phase = TurnProgress::Phase::running;
    ++running_;
    start_attempt(i);
  }
  suspend();
  settle();
}

/// With `until`, a round starts only when the one before it is over and did not end the rounds.
bool RunLoop::round_may_start(std::size_t turn) {
  const std::optional<ConditionSpec>& until = plan_.spec->topology.until;
  const int before = planned(turn).round - 1;
  if (!until || planned(turn).decides || before < 1 || stopped_early_ || rounds_checked_ >= before) return true;
  if (!state_.round_over(before)) return false;
  rounds_checked_ = before;
  stopped_early_ = state_.rounds_end(before);
  return true;
}

void RunLoop::skip(std::size_t turn, const std::string& reason) {
  state_.turn(turn).record.error = reason;
  close(turn, TurnState::skipped);
}

void RunLoop::close(std::size_t turn, TurnState turn_state) {
  TurnProgress& state = state_.turn(turn);
  if (state.phase == TurnProgress::Phase::running) --running_;
  state.phase = TurnProgress::Phase::over;
  state.record.state = turn_state;
  hand_over_.turn_over(turn);
  early_.over(turn);
  emit(AgentFinished{state.record, static_cast<int>(turn), state.tokens});
}

/// Starts no new turn, stops the running turns and waits for them. The first reason to end counts.
void RunLoop::end(RunState run_state, const std::string& error, std::optional<ErrorKind> kind) {
  if (ending_) return;
  ending_ = true;
  record_.state = run_state;
  record_.error_kind = kind;
  if (!try_to([&] { record_.error = error; })) record_.error = kNoMemory;
  try_to([&] { early_.stop(); });
  frames_.request_stop();
  for (std::size_t i = 0; i < state_.size(); ++i) {
    Attempt& attempt = *attempts_[i];
    attempt.stop.request_stop();
    if (attempt.phase == Attempt::Phase::generating)
      try_to([&] { attempt.engine->cancel(attempt.request); });  // else it ends by itself
  }
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const Attempt::Phase phase = attempts_[i]->phase;
    const bool waits =
        phase == Attempt::Phase::pausing || phase == Attempt::Phase::held || phase == Attempt::Phase::asked;
    if (waits) turn_over(i, TurnState::cancelled);
  }
}

void RunLoop::settle() {
  if (finished_) return;
  const bool over = ending_ ? running_ == 0 : state_.all_over();
  if (over) finish();
}

/// May be called again where it threw.
void RunLoop::finish() {
  ending_ = true;
  on_stop_.reset();  // from here on the run cannot be stopped
  run_due_.reset();
  complete_record();
  emit(RunFinished{record_});
  finished_ = true;
  if (callback_failed_) {
    record_.state = RunState::failed;
    record_.error = std::move(callback_error_);
    record_.error_kind = ErrorKind::host;
  }
  keep_memory();
}

void RunLoop::complete_record() {
  record_.agents.clear();
  for (std::size_t i = 0; i < state_.size(); ++i) {
    TurnProgress& state = state_.turn(i);
    if (state.phase == TurnProgress::Phase::waiting) skip(i, "not started: " + record_.error);
    record_.agents.push_back(state.record);
  }
  if (std::optional<NamedTexts> outputs = state_.outputs()) {
    record_.outputs = std::move(*outputs);
  } else if (record_.state == RunState::ok) {
    record_.state = RunState::failed;
    record_.error = "the outputs of the workflow have more than 64 MiB";
  }
  describe_engines();
  if (request_.servers) record_.servers = request_.servers();
  if (callback_failed_) {
    record_.state = RunState::failed;
    record_.error = callback_error_;
    record_.error_kind = ErrorKind::host;
  }
  record_.wall_ms = milliseconds(Clock::now() - begin_);
}

/// The record's fields that are known before the first turn.
void RunLoop::describe() {
  record_.version = request_.version;
  record_.date = utc_now();
  record_.workflow = plan_.spec->name;
  record_.relay = plan_.relay;
  record_.seed = request_.seed.value_or(plan_.spec->defaults.seed.value_or(0));
  for (const InputSpec& input : plan_.spec->inputs) {
    if (const auto given = request_.inputs.find(input.name); given != request_.inputs.end())
      record_.inputs[input.name] = given->second;
  }
  record_.load_ms = request_.load_ms;
  record_.measure_ms = request_.measure_ms;
}

void RunLoop::describe_engines() {
  std::vector<const InferenceEngine*> counted;
  record_.memory = {};
  for (const auto& [name, engine] : request_.engines) {
    if (std::find(counted.begin(), counted.end(), engine.get()) != counted.end()) continue;  // two names of one engine
    counted.push_back(engine.get());
    const EngineStats stats = engine->stats();
    record_.memory.weights_bytes += stats.weights_bytes;
    record_.memory.kv_peak_bytes += stats.kv_peak_bytes;
    record_.memory.segments_peak_bytes += stats.segments.peak_bytes;
    record_.memory.host_segments_peak_bytes += stats.segments.host_peak_bytes;
    record_.memory.anchors_bytes += stats.anchors.bytes;
  }
  const auto first_turn =
      std::find_if(plan_.turns.begin(), plan_.turns.end(), [](const PlannedTurn& turn) { return turn.has_prompt(); });
  if (first_turn == plan_.turns.end()) return;
  const auto found = request_.engines.find(first_turn->model);
  if (found == request_.engines.end()) return;  // stopped while models were opened
  const InferenceEngine& first = *found->second;
  record_.model_path = first.text().path.string();
  record_.model_fingerprint = first.text().fingerprint;
  record_.device = first.info().device;
  record_.device_fallback = first.info().device_fallback;
  record_.threads = first.info().threads;
}

/// A callback that throws ends the run, after the current task, and is not called again.
void RunLoop::emit(const Event& event) {
  if (!request_.on_event || callback_failed_) return;
  try {
    request_.on_event(event);
    return;
  } catch (const std::exception& error) {
    callback_failed_ = true;
    callback_error_ = kNoMemory;
    callback_error_ = fmt::format("the event callback threw: {}", message_of(error));
  } catch (...) {
    callback_failed_ = true;
    callback_error_ = "the event callback threw";
  }
}

}  // namespace baton
