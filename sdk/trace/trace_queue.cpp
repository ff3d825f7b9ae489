// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/trace_queue.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <new>
#include <utility>

#include "engine/base/errors.h"

namespace baton {
namespace {

constexpr std::size_t kMaxWaiting = 256;

}  // namespace

TraceQueue::TraceQueue(TraceTarget target, std::function<void(const std::string& line)> on_log)
    : target_(std::move(target)), on_log_(std::move(on_log)), thread_([this](const auto& stop) { work(stop); }) {}

TraceQueue::~TraceQueue() {
  thread_.request_stop();
  thread_.join();
}

EventCallback TraceQueue::follow() {
  struct Followed {
    RunMarks marks;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  };
  return [this, run = std::make_shared<Followed>()](const Event& event) {
    const auto now = std::chrono::steady_clock::now();
    if (std::holds_alternative<RunStarted>(event)) run->begin = now;
    try {
      run->marks.add(event, std::chrono::duration<double, std::milli>(now - run->begin).count());
      if (const auto* finished = std::get_if<RunFinished>(&event))
        add(spans_of(finished->record, run->marks.turns(finished->record)));
    } catch (const std::bad_alloc&) {  // takes nothing from the run
      const std::lock_guard lock(mutex_);
      ++lost_;
    }
  };
}

void TraceQueue::add(RunTrace trace) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      ++lost_;
      return;
    }
    waiting_.push_back(std::move(trace));
  }
  changed_.notify_one();
}

void TraceQueue::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
    const RunTrace trace = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::string problem = "out of memory";
    try_to([&] { problem = target_.write(trace); });
    lock.lock();
    if (!problem.empty()) ++lost_;
    const std::size_t lost = problem.empty() ? std::exchange(lost_, 0) : lost_;
    lock.unlock();
    try_to([&] { tell(problem, lost); });
    lock.lock();
    if (!problem.empty() && stop.stop_requested()) return;
  }
}

void TraceQueue::tell(const std::string& problem, std::size_t lost) {
  if (!on_log_) return;
  if (problem.empty() && !told_ && lost > 0)
    on_log_(fmt::format("warning: {} traces were lost; more than {} waited for the collector", lost, kMaxWaiting));
  if (problem.empty() == !told_) return;
  told_ = !told_;
  on_log_(problem.empty() ? fmt::format("traces are written again; {} were lost", lost)
                          : "warning: a trace is lost, and so are those that follow until this ends: " + problem);
}

}  // namespace baton
