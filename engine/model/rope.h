// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: inverse frequencies with the scalings of the supported families, and the angles of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/model/config.h"

namespace baton {

/// Angles are computed in double and rounded once: at position 131,072 an fp32 angle has steps of 1/128 rad.
class Rope {
 public:
  explicit Rope(const ModelConfig& config, RopeKind kind = RopeKind::global);

  std::span<const double> inverse_frequencies() const { return inverse_frequencies_; }  // [D/2]
  double attention_factor() const { return attention_factor_; }                         // multiplies cos and sin, once

  /// Fills cos and sin, [T, D/2] in host memory, for the positions. Throws std::invalid_argument for other shapes.
  void angles(std::span<float> cos, std::span<float> sin, std::span<const std::int32_t> positions) const;

 private:
  std::vector<double> inverse_frequencies_;
  double attention_factor_ = 1.0;
};

/// The RoPEs of a model's layers.
class LayerRopes {
 public:
  explicit LayerRopes(const ModelConfig& config);

  const std::vector<Rope>& distinct() const { return distinct_; }
  /// Returns the index into distinct() of the layer's RoPE.
  std::size_t of(std::int32_t layer) const { return of_layer_[static_cast<std::size_t>(layer)]; }

 private:
  std::vector<Rope> distinct_;
  std::vector<std::size_t> of_layer_;  // [L]
};

}  // namespace baton
