// SPDX-License-Identifier: Apache-2.0
// A run: one thread that drives the executor, and what the host sees of it.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "engine/base/clock.h"
#include "sdk/src/internal.h"

namespace baton::inline v1 {

struct Run::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  bool over = false;
  bool discard = false;
  RunRecord record;
  std::exception_ptr error;
  std::stop_source stop;
  std::thread worker;
  std::thread::id callback;  // the thread that is inside of on_event

  /// Throws where the calling thread would wait for itself. The mutex is held.
  void may_wait() const {
    if (!over && callback == std::this_thread::get_id())
      throw InputError("called from the run's own on_event callback, which would wait for itself");
  }

  /// Takes the texts out of a cancelled run's record. The mutex is held.
  void drop_texts(RunRecord& of) const {
    if (!discard || of.state != RunState::cancelled) return;
    of.outputs.clear();
    for (auto& agent : of.agents) {
      agent.output.clear();
      agent.answer.clear();
    }
  }

  void emit(Event event, const EventCallback& on_event) {
    {
      const std::lock_guard lock(mutex);
      if (auto* finished = std::get_if<RunFinished>(&event)) drop_texts(finished->record);
      events.push_back(event);
      if (on_event) callback = std::this_thread::get_id();
    }
    changed.notify_all();
    if (!on_event) return;
    std::exception_ptr thrown;
    try {
      on_event(event);
    } catch (...) {
      thrown = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex);
      callback = {};
      if (!error) error = thrown;
    }
    if (thrown) stop.request_stop();
  }

  void finish(RunRecord of) {
    const std::lock_guard lock(mutex);
    record = std::move(of);
    drop_texts(record);
    over = true;
    changed.notify_all();
  }

  void fail(std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    if (!error) error = reason;
    over = true;
    changed.notify_all();
  }

  void end(bool without_texts) noexcept {
    {
      const std::lock_guard lock(mutex);
      if (over) return;
      discard = discard || without_texts;
    }
    stop.request_stop();
  }

  /// Waits for the thread; a Run that dies in its own callback leaves the thread to end by itself.
  void join() noexcept {
    if (!worker.joinable()) return;
    if (worker.get_id() == std::this_thread::get_id()) {
      worker.detach();
    } else {
      worker.join();
    }
  }
};

Run start_run(RunRequest request, std::function<std::function<void()>(RunRequest& request)> prepare) {
  auto state = std::make_shared<Run::State>();
  const auto no_memory = std::make_exception_ptr(
      ResourceError(ResourceError::Kind::memory, "the run ended: out of memory"));  // made while there is memory
  auto work = [state, no_memory, request = std::move(request), prepare = std::move(prepare)]() mutable {
    // The host's token and Run::stop end the run alike.
    const std::stop_callback forward(request.stop, [&] { state->stop.request_stop(); });
    try {
      request.stop = state->stop.get_token();
      request.on_event = [raw = state.get(), callback = std::move(request.on_event)](const Event& event) {
        raw->emit(event, callback);
      };
      const std::function<void()> after = prepare(request);
      state->finish(run_plan(request));
      try_to(after);
    } catch (const std::bad_alloc&) {
      state->fail(no_memory);
    } catch (...) {
      state->fail(std::current_exception());
    }
  };
  state->worker = with_resource_errors([&] { return std::thread(std::move(work)); });
  return Run(std::move(state));
}

Run::Run(Run&&) noexcept = default;

Run& Run::operator=(Run&& other) noexcept {
  if (this != &other) {
    Run old(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

Run::~Run() {
  if (!state_) return;
  state_->end(true);
  state_->join();
}

RunRecord Run::get() const {
  std::unique_lock lock(state_->mutex);
  state_->may_wait();
  state_->changed.wait(lock, [&] { return state_->over; });
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->record;
}

bool Run::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(state_->mutex);
  if (time > time.zero()) state_->may_wait();
  return state_->changed.wait_for(lock, std::clamp(time, time.zero(), kMaxWait), [&] { return state_->over; });
}

void Run::stop() noexcept { state_->end(false); }
void Run::cancel() noexcept { state_->end(true); }

Run::Next Run::next(Event& event, std::optional<std::chrono::milliseconds> time) const {
  std::unique_lock lock(state_->mutex);
  const auto known = [&] { return state_->over || !state_->events.empty(); };
  if (!time || *time > time->zero()) state_->may_wait();
  if (!time) {
    state_->changed.wait(lock, known);
  } else if (!state_->changed.wait_for(lock, std::clamp(*time, time->zero(), kMaxWait), known)) {
    return Next::pending;
  }
  if (state_->events.empty()) return Next::over;
  event = std::move(state_->events.front());
  state_->events.pop_front();
  return Next::event;
}

EventRange::Iterator EventRange::begin() const {
  Iterator iterator;
  iterator.run_ = run_;
  ++iterator;
  return iterator;
}

EventRange::Iterator& EventRange::Iterator::operator++() {
  if (run_ != nullptr && run_->next(event_) == Run::Next::over) run_ = nullptr;
  return *this;
}

}  // namespace baton::inline v1
