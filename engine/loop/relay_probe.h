// SPDX-License-Identifier: Apache-2.0
// The probe of a turn: a request that the engine makes itself, after a turn of method auto has ended, with the turn's
// prompt and the first tokens of its answer. A turn whose prompt was exact is rectified by its probe, a rectified one
// is computed exactly, and the divergence of both is what rectification leaves in the turn's place
// (docs/decisions/auto.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/reuse/decision.h"

namespace baton {

/// The logits of the first rows of an answer, until its probe has compared them.
class MeasuredTurn {
 public:
  MeasuredTurn(PlaceId place, std::int32_t vocabulary);

  PlaceId place() const { return place_; }
  bool full() const { return rows_.size() >= max_rows_; }
  /// Keeps one more row [V]. Without memory for it, none is kept.
  void keep(std::span<const float> logits) noexcept;
  const std::vector<std::vector<float>>& rows() const { return rows_; }

 private:
  PlaceId place_;
  std::size_t max_rows_;
  std::vector<std::vector<float>> rows_;
};

/// True when a probe can rectify the prompt: it holds a segment that method auto might take.
bool can_be_measured(const GenerationRequest& turn);

/// Makes the probe of a turn that has ended. Returns nothing when its answer is too short. `levels`: the model's, not
/// empty. `on_measured` is called when the probe has ended, if it reused the KV that it should.
struct EndedTurn {
  const GenerationRequest& request;
  const ReuseDecision& decision;
  const GenerationResult& result;
};
std::optional<GenerationRequest> make_probe(const EndedTurn& ended, std::shared_ptr<const MeasuredTurn> kept,
                                            const RelayLevels& levels,
                                            std::function<void(const RelayObservation&)> on_measured);

}  // namespace baton
