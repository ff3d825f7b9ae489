// SPDX-License-Identifier: Apache-2.0
// RelayMeasuring: an engine's calibration, and the turns by which method auto measures it. A turn's first logits are
// kept, and a probe compares them with those of the other way to obtain its KV (relay_probe.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/loop/relay_probe.h"
#include "engine/reuse/calibration.h"

namespace baton {

/// All members are safe from any thread. The object must outlive the probes that it makes.
class RelayMeasuring {
 public:
  /// `vocabulary`: the model's; it bounds the memory of a turn's logits.
  explicit RelayMeasuring(std::int32_t vocabulary) : vocabulary_(vocabulary) {}

  Calibration calibration() const;
  /// Replaces the calibration. `changed_history` then returns nothing unless the history is the one that was measured.
  void set_calibration(Calibration calibration);
  /// Returns the history if turns were counted or measured since the last call, else nothing.
  std::optional<RelayHistory> changed_history();
  /// Calls `read` with the calibration, which is not copied, and returns what it returns.
  template <typename Read>
  auto with_calibration(const Read& read) const {
    const std::lock_guard lock(mutex_);
    return read(calibration_);
  }

  /// Counts a turn of method auto for its place. Returns where its logits are to be kept, or null when it is not to be
  /// measured.
  std::shared_ptr<MeasuredTurn> begin(const GenerationRequest& request, const ReuseDecision& decision);
  /// Returns the probe of a measured turn that has ended, or nothing when its answer is too short.
  std::optional<GenerationRequest> probe_of(const GenerationRequest& request, const ReuseDecision& decision,
                                            const GenerationResult& result, const std::shared_ptr<MeasuredTurn>& turn);
  /// Number of turns that are being measured for places about which too little is known.
  std::int32_t measuring() const;

 private:
  std::int32_t vocabulary_;
  mutable std::mutex mutex_;
  Calibration calibration_;                            // guarded by mutex_
  bool history_changed_ = false;                       // guarded by mutex_
  std::vector<std::weak_ptr<MeasuredTurn>> measured_;  // guarded by mutex_; at most kMaxMeasured, some expired
};

}  // namespace baton
