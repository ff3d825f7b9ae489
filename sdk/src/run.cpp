// SPDX-License-Identifier: Apache-2.0
// A run: one thread that drives the executor, and what the host sees of it.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "engine/base/clock.h"
#include "sdk/src/internal.h"

#include "sdk/record/record_folder.h"

namespace baton::inline v1 {
namespace {

/// A tool of one run. Marks the calling thread as inside a callback of the run while the tool works.
class ToolOfRun : public Tool {
 public:
  ToolOfRun(std::shared_ptr<const ToolRegistry> owner, const Tool& tool, std::shared_ptr<InCallback> in)
      : owner_(std::move(owner)), tool_(tool), in_(std::move(in)) {}
  std::string name() const override { return tool_.name(); }
  std::string check(const std::map<std::string, std::string>& options) const override { return tool_.check(options); }
  ToolResult call(const ToolCall& call) const override {
    const InCallback::Scope scope(*in_);
    return tool_.call(call);
  }
  std::vector<IsolationFact> isolation() const override { return tool_.isolation(); }

 private:
  std::shared_ptr<const ToolRegistry> owner_;  // keeps the tool alive
  const Tool& tool_;
  std::shared_ptr<InCallback> in_;
};

std::shared_ptr<const ToolRegistry> tools_of_run(const std::shared_ptr<const ToolRegistry>& all,
                                                 const std::shared_ptr<InCallback>& in) {
  auto tools = std::make_shared<ToolRegistry>();
  for (const std::string& name : all->names()) tools->add(std::make_shared<ToolOfRun>(all, *all->find(name), in));
  return tools;
}

/// A stop token that fires when another token does, or at a point in time.
class StopAt {
 public:
  StopAt(const std::stop_token& other, const std::optional<Clock::time_point>& due)
      : forward_(other, [this] { source_.request_stop(); }) {
    if (due)
      timer_ = with_resource_errors([&] { return std::jthread([this, due](const auto& end) { wait(*due, end); }); });
  }
  StopAt(const StopAt&) = delete;
  StopAt& operator=(const StopAt&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  void wait(Clock::time_point due, const std::stop_token& end) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_until(lock, end, due, [] { return false; });
    if (!end.stop_requested()) source_.request_stop();
  }

  std::stop_source source_;
  std::stop_callback<std::function<void()>> forward_;
  std::jthread timer_;
};

}  // namespace

struct Run::State {
  Owner owner;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  bool over = false;
  bool discard = false;
  RunRecord record;
  std::exception_ptr error;
  std::stop_source stop;
  std::thread worker;
  std::shared_ptr<InCallback> in_tool = std::make_shared<InCallback>();
  std::shared_ptr<InCallback> in_engine;  // says whether a thread is inside a callback of the engine

  /// Returns why the run cannot end until the calling thread returns; null: it can end.
  const char* held_up_here() const {
    if (worker.get_id() == std::this_thread::get_id())  // in on_event, or in a callback while models open
      return "called from a callback of the run itself, which would wait for itself";
    if (in_tool->here()) return "called from a tool that the run itself waits for, which would wait for itself";
    if (in_engine->here()) return "called from a callback of the run's engine, which would wait for itself";
    return nullptr;
  }

  /// Throws if the run that the caller waits for waits for the caller. The mutex must be held.
  void may_wait() const {
    if (over) return;
    if (const char* reason = held_up_here()) throw InputError(reason);
  }

  /// Removes the texts from a cancelled run's record. The mutex must be held.
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
      if (!error) error = thrown;
    }
    if (thrown) stop.request_stop();
  }

  bool drops_texts(const RunRecord& of) {
    const std::lock_guard lock(mutex);
    return discard && of.state == RunState::cancelled;
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

  /// Waits for the worker. Called in a callback that the worker waits for, it detaches the worker instead.
  void join() noexcept {
    if (!worker.joinable()) return;
    if (held_up_here() != nullptr) {
      worker.detach();
    } else {
      worker.join();
    }
  }
};

Run start_run(RunRequest request, std::shared_ptr<InCallback> in_engine,
              std::function<std::function<void()>(RunRequest& request, const std::stop_token& stop)> prepare,
              std::function<void()> on_end, std::unique_ptr<RunRecorder> recorder) {
  auto state = make_owned<Run::State>();
  state->in_engine = std::move(in_engine);
  request.tools = tools_of_run(request.tools, state->in_tool);
  if (request.on_ask) {
    request.on_ask = [in = state->in_tool, ask = std::move(request.on_ask)](const Asked& asked, const auto& stop) {
      const InCallback::Scope scope(*in);
      return ask(asked, stop);
    };
  }
  if (request.timeout.count() > 0) request.due = Clock::now() + request.timeout;
  const auto no_memory = std::make_exception_ptr(
      ResourceError(ResourceError::Kind::memory, "the run ended: out of memory"));  // made while there is memory
  auto work = [state, no_memory, request = std::move(request), prepare = std::move(prepare), on_end = std::move(on_end),
               recorder = std::shared_ptr<RunRecorder>(std::move(recorder))]() mutable {
    // The host's token and Run::stop both end the run.
    const std::stop_callback forward(request.stop, [&] { state->stop.request_stop(); });
    try {
      request.stop = state->stop.get_token();
      request.on_event = [raw = state.get(), to = recorder.get(),
                          callback = std::move(request.on_event)](const auto& event) {
        if (to != nullptr) to->add(event);
        raw->emit(event, callback);
      };
      if (recorder) {
        request.on_prompt = [to = recorder.get()](const std::string& turn, std::string text,
                                                  std::vector<std::int32_t> ids) {
          to->add_prompt(turn, std::move(text), std::move(ids));
        };
      }
      std::function<void()> after = [] {};
      try {
        const StopAt end(request.stop, request.due);
        after = prepare(request, end.token());
      } catch (const Interrupted&) {  // the run is over before its first turn, and its record says why
      }
      RunRecord record = run_plan(request);
      if (recorder) state->drops_texts(record) ? recorder->drop() : recorder->write(record);
      state->finish(std::move(record));
      try_to(after);
    } catch (const std::bad_alloc&) {
      recorder.reset();
      if (request.on_memory) request.on_memory(nullptr);
      state->fail(no_memory);
    } catch (...) {
      recorder.reset();
      if (request.on_memory) request.on_memory(nullptr);
      state->fail(std::current_exception());
    }
    if (on_end) try_to(on_end);
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
  if (!state_ || !state_->owner.here()) return;
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
  return state_->changed.wait_for(lock, bounded_wait(time), [&] { return state_->over; });
}

void Run::stop() noexcept { state_->end(false); }
void Run::cancel() noexcept { state_->end(true); }

Run::Next Run::next(Event& event, std::optional<std::chrono::milliseconds> time) const {
  std::unique_lock lock(state_->mutex);
  const auto known = [&] { return state_->over || !state_->events.empty(); };
  if (!time || *time > time->zero()) state_->may_wait();
  if (!time) {
    state_->changed.wait(lock, known);
  } else if (!state_->changed.wait_for(lock, bounded_wait(*time), known)) {
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
