// SPDX-License-Identifier: Apache-2.0
// The engine's thread: measures turns for their places. Whatever goes wrong here loses a measurement, never an answer.
#include "engine/loop/engine_core.h"
#include "engine/loop/relay_probe.h"

namespace baton {
namespace {

constexpr std::size_t kMaxMeasured = 4;  // turns whose logits are kept at once, from the first row to the probe's end

}  // namespace

void EngineCore::begin_measuring(Sequence& sequence) {
  const GenerationRequest& request = sequence.request();
  if (request.reuse.method->id != MethodId::automatic || !request.reuse.history || !can_be_measured(request)) return;
  if (request.context && request.context->hops > 0) return;  // what was approximate before is not the place's doing
  const PlaceId place = place_of(request.reader, request.prompt);
  const std::lock_guard lock(mutex_);
  history_changed_ = true;
  if (!history_.wants(place)) return;
  std::erase_if(measured_, [](const auto& one) { return one.expired(); });
  if (measured_.size() == kMaxMeasured) return;
  auto turn = std::make_shared<MeasuredTurn>(place, model_->config.vocabulary);
  measured_.push_back(turn);
  sequence.measure(std::move(turn));
}

void EngineCore::make_probe_of(Sequence& ended) {
  const std::shared_ptr<MeasuredTurn>& turn = ended.measured();
  const RelayLevels levels = relay_levels();
  if (!turn || levels.levels.empty()) return;
  auto probe = make_probe(ended.request(), ended.result(), turn, levels,
                          [this, place = turn->place()](const RelayObservation& observation) {
                            const std::lock_guard lock(mutex_);
                            history_.add(place, observation);
                            history_changed_ = true;
                          });
  if (!probe) return;
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_id_;
  }
  probes_.push_back(std::make_unique<Sequence>(id, std::move(*probe), *model_, nullptr));
  probes_.back()->be_probe();
}

void EngineCore::admit_probe() {
  if (probes_.empty() || !waiting_.empty() || static_cast<std::int32_t>(running_.size()) >= options_.max_sequences)
    return;
  if (std::any_of(running_.begin(), running_.end(), [](const auto& one) { return one->is_probe(); })) return;
  Sequence& next = *probes_.front();
  const auto bytes = static_cast<std::int64_t>(bytes_for(next.request(), next.max_positions()));
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
  const auto found = std::find_if(running_.begin(), running_.end(), [](const auto& one) { return one->is_probe(); });
  if (found == running_.end()) return false;
  end(running_, found, FinishReason::cancelled, "");
  return true;
}

}  // namespace baton
