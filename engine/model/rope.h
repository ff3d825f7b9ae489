// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: inverse frequencies with the scalings of the supported families, and the angles of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/config.h"

namespace baton {

/// Angles are computed in double and rounded once: at position 131,072 an fp32 angle has steps of 1/128 rad.
class Rope {
 public:
  explicit Rope(const ModelConfig& config, RopeKind kind = RopeKind::global);

  std::span<const double> inverse_frequencies() const { return inverse_frequencies_; }  // [R/2]
  double attention_factor() const { return attention_factor_; }                         // multiplies cos and sin, once

  /// Fills cos and sin, [T, R/2] in host memory, for the positions. Throws std::invalid_argument for other shapes.
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

// RopeTable: the angles of all positions up to the largest seen, of every RoPE of a model, in backend memory. They are
// computed once; steps gather from the table, and placing KV points into it.

/// Not thread-safe. The device and the ropes must outlive the object.
class RopeTable {
 public:
  RopeTable(Device& device, const LayerRopes& ropes)
      : device_(device), ropes_(ropes), memory_(ropes.distinct().size()) {}

  const LayerRopes& ropes() const { return ropes_; }

  /// Returns the angles of positions [begin, begin + n) of ropes().distinct()[rope], valid until a call for larger
  /// positions. Throws BackendError when there is no memory.
  RopeAngles range(std::size_t rope, std::int32_t begin, std::int32_t n);

  /// Returns the angles of all positions computed so far.
  RopeAngles all(std::size_t rope) { return range(rope, 0, positions_); }

  /// Computes the angles of positions [0, positions) now. Throws BackendError when there is no memory.
  void reserve(std::int32_t positions);

 private:
  Device& device_;
  const LayerRopes& ropes_;
  std::vector<Buffer> memory_;  // of each rope: cos [positions, R/2], sin
  std::int32_t positions_ = 0;
};

}  // namespace baton
