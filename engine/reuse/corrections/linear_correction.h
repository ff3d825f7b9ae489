// SPDX-License-Identifier: Apache-2.0
// LinearCorrection: what a place in a prompt does to the KV of a text that is handed over to it, as a linear map of
// that KV, learned from texts whose KV there was computed (docs/methods.md, "Learned corrections").
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/reuse/anchors/anchor.h"

namespace baton {

/// change of a token's KV in layers 1 to L - 1 = decoder (encoder x) + bias, x being its KV in all layers as it was
/// handed over: for each layer the keys before RoPE, then the values. Layer 0 depends on the token alone.
struct LinearCorrection {
  AnchorShape shape;
  std::int32_t rank = 0;               // r
  std::vector<std::uint16_t> encoder;  // [r, L * 2 K D] bf16
  std::vector<std::uint16_t> decoder;  // [(L - 1) * 2 K D, r] bf16
  std::vector<float> bias;             // [(L - 1) * 2 K D]
  float left = 1.0f;                   // of the squared change, on texts that it was not learned from
  std::int32_t texts = 0;              // learned from

  std::int64_t inputs() const { return std::int64_t{shape.layers} * 2 * shape.width; }
  std::int64_t outputs() const { return (std::int64_t{shape.layers} - 1) * 2 * shape.width; }
};

/// By the place: AnchorKey without a pool. Immutable; any thread.
using Corrections = std::map<AnchorKey, std::shared_ptr<const LinearCorrection>>;

}  // namespace baton
