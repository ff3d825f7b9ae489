// SPDX-License-Identifier: Apache-2.0
// The engine's thread: measures turns for their places. Whatever goes wrong here loses a measurement, never an answer.
#include "engine/loop/engine_core.h"
#include "engine/loop/relay_probe.h"

namespace baton {

void EngineCore::make_probe_of(Sequence& ended) {
  auto probe = measuring_.probe_of(ended.request(), ended.result(), ended.state.measured);
  if (!probe) return;
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_id_;
  }
  probes_.push_back(std::make_unique<Sequence>(id, std::move(*probe), *model_, nullptr));
  probes_.back()->state.probe = true;
}

void EngineCore::admit_probe() {
  if (probes_.empty() || !waiting_.empty() || static_cast<std::int32_t>(running_.size()) >= options_.max_sequences)
    return;
  if (std::any_of(running_.begin(), running_.end(), [](const auto& one) { return one->state.probe; })) return;
  Sequence& next = *probes_.front();
  const auto bytes = static_cast<std::int64_t>(bytes_for(next.request(), next.state.max_positions()));
  const bool room = kv_bytes() + ahead_.bytes() + bytes <= options_.kv_budget_bytes / 2;
  const bool started = room && try_to([&] {
                         for (const PromptPart& part : next.request().prompt) store_.plan_read(part.segment);
                         start(next);
                         running_.push_back(nullptr);
                       });
  if (!started) return end(probes_, probes_.begin(), FinishReason::cancelled, "");
  running_.back() = std::move(probes_.front());
  probes_.pop_front();
  count_kv();
}

bool EngineCore::drop_probe() noexcept {
  const auto found = std::find_if(running_.begin(), running_.end(), [](const auto& one) { return one->state.probe; });
  if (found == running_.end()) return false;
  end(running_, found, FinishReason::cancelled, "");
  return true;
}

}  // namespace baton
