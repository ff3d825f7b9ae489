// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/engine_loop.h"

#include <algorithm>

namespace baton {

void EngineLoop::run() noexcept {
  for (bool open = true; open;) {
    try {
      open = wait_for_work();
      if (!open) break;
      apply_cancels();
      admission_.admit();
      admission_.admit_probe();
      const bool rows = !parts_.running.empty() || parts_.ahead.has_work(free_bytes(parts_), {});
      if (rows && runner_.step()) admission_.begin_checks();
    } catch (const std::exception& error) {
      recover(message_of(error));
    } catch (...) {  // a host's callback may throw anything
      recover(kCallbackThrew);
    }
  }
  parts_.work.orders.clear();  // who waits for one returns
  parts_.ahead.clear();
  for (SequenceList* list : {&parts_.running, &parts_.work.waiting, &parts_.probes}) {
    while (!list->empty()) end_.end(*list, list->begin(), FinishReason::cancelled, "");
  }
  parts_.prefixes.clear();
  parts_.store.close();
}

bool EngineLoop::wait_for_work() {
  const auto busy = [this] {
    return !parts_.running.empty() || !parts_.probes.empty() || parts_.ahead.has_work(free_bytes(parts_), {});
  };
  if (!parts_.inbox.wait(parts_.work, busy, [this] { parts_.counters.set_busy_ahead(); })) return false;
  bool forget_all = parts_.work.forget_all;
  for (Inbox::Order& order : parts_.work.orders) {
    if (!try_to([&] { order(parts_.ahead); })) forget_all = true;
  }
  parts_.work.orders.clear();
  if (forget_all) parts_.ahead.clear();
  try_to([&] { parts_.store.settle(); });  // methods may have charged their states to the budget since the last step
  end_.count_kv();
  return true;
}

void EngineLoop::apply_cancels() {
  std::vector<RequestId>& cancelling = parts_.work.cancelling;
  while (!cancelling.empty()) {
    const RequestId id = cancelling.back();
    cancelling.pop_back();
    for (SequenceList* list : {&parts_.running, &parts_.work.waiting}) {
      const auto found = std::find_if(list->begin(), list->end(), [&](const auto& s) { return s->id() == id; });
      if (found != list->end()) end_.end(*list, found, FinishReason::cancelled, "");
    }
  }
}

/// The failure may have touched any request that had begun, so all of them end. If none had, the first that waits ends,
/// so that a lasting shortage ends requests one by one.
void EngineLoop::recover(const char* error) noexcept {
  SequenceList& running = parts_.running;
  SequenceList& waiting = parts_.work.waiting;
  parts_.ahead.clear();
  parts_.copied.clear();
  const auto begun = [](const auto& one) { return one->cache_bytes() > 0; };
  bool any = !running.empty();
  while (!running.empty()) end_.end(running, running.begin(), FinishReason::error, error);
  for (auto at = waiting.end(); (at = std::find_if(waiting.begin(), waiting.end(), begun)) != waiting.end();) {
    any = true;
    end_.end(waiting, at, FinishReason::error, error);
  }
  if (any) return;
  if (!waiting.empty()) return end_.end(waiting, waiting.begin(), FinishReason::error, error);
  // The first request could not even be moved to those that wait.
  if (std::unique_ptr<Sequence> first = parts_.inbox.take_first())
    end_.end(std::move(first), FinishReason::error, error);
}

}  // namespace baton
