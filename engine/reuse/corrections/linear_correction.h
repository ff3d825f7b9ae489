// SPDX-License-Identifier: Apache-2.0
// LinearCorrection: the change of a text's KV in one place of a prompt, as a linear map of the KV that was handed over.
// The map is learned from texts whose KV in that place was computed (docs/methods.md, "Learned corrections").
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/reuse/anchors/anchor.h"

namespace baton {

/// The change of a token's KV in layers 1 to L - 1 is decoder (encoder x) + bias, where x is the token's KV in all
/// layers as handed over: for each layer the keys before RoPE, then the values. Layer 0 depends on the token alone.
struct LinearCorrection {
  AnchorShape shape;
  std::int32_t rank = 0;               // r
  std::vector<std::uint16_t> encoder;  // [r, L * 2 K D] bf16
  std::vector<std::uint16_t> decoder;  // [(L - 1) * 2 K D, r] bf16
  std::vector<float> bias;             // [(L - 1) * 2 K D]
  float left = 1.0f;                   // fraction of the squared change that remains on held-out texts
  std::int32_t texts = 0;              // number of training texts

  std::int64_t inputs() const { return std::int64_t{shape.layers} * 2 * shape.width; }
  std::int64_t outputs() const { return (std::int64_t{shape.layers} - 1) * 2 * shape.width; }
};

/// The corrections by place, an AnchorKey without a pool. Immutable, so safe from any thread.
using Corrections = std::map<AnchorKey, std::shared_ptr<const LinearCorrection>>;

}  // namespace baton
