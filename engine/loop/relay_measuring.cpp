// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/relay_measuring.h"

#include <utility>

namespace baton {
namespace {

constexpr std::size_t kMaxMeasured = 4;  // turns whose logits are kept at once, from the first row to the probe's end

}  // namespace

Calibration RelayMeasuring::calibration() const {
  const std::lock_guard lock(mutex_);
  return calibration_;
}

void RelayMeasuring::set_calibration(Calibration calibration) {
  const std::lock_guard lock(mutex_);
  history_changed_ = history_changed_ && calibration.history == calibration_.history;
  calibration_ = std::move(calibration);
}

std::optional<RelayHistory> RelayMeasuring::changed_history() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(history_changed_, false)) return std::nullopt;
  return calibration_.history;
}

std::shared_ptr<MeasuredTurn> RelayMeasuring::begin(const GenerationRequest& request, const ReuseDecision& decision) {
  if (!decision.measured || !can_be_measured(request)) return nullptr;
  if (request.context && request.context->hops > 0) return nullptr;  // the place did not make that KV approximate
  const PlaceId place = place_of(request.reader, request.prompt);
  const std::lock_guard lock(mutex_);
  history_changed_ = true;
  if (!calibration_.history.wants(place)) return nullptr;
  std::erase_if(measured_, [](const auto& one) { return one.expired(); });
  if (measured_.size() == kMaxMeasured) return nullptr;
  auto turn = std::make_shared<MeasuredTurn>(place, vocabulary_);
  measured_.push_back(turn);
  return turn;
}

std::optional<GenerationRequest> RelayMeasuring::probe_of(const GenerationRequest& request,
                                                          const ReuseDecision& decision, const GenerationResult& result,
                                                          const std::shared_ptr<MeasuredTurn>& turn) {
  if (!turn) return std::nullopt;
  const RelayLevels levels = with_calibration([](const Calibration& now) { return now.levels; });
  if (levels.levels.empty()) return std::nullopt;
  return make_probe({request, decision, result}, turn, levels,
                    [this, place = turn->place()](const RelayObservation& observation) {
                      const std::lock_guard lock(mutex_);
                      calibration_.history.add(place, observation);
                      history_changed_ = true;
                    });
}

std::int32_t RelayMeasuring::measuring() const {
  const std::lock_guard lock(mutex_);
  std::int32_t turns = 0;
  for (const auto& one : measured_) {
    const auto turn = one.lock();
    turns += turn && !calibration_.history.knows_enough(turn->place()) ? 1 : 0;
  }
  return turns;
}

}  // namespace baton
