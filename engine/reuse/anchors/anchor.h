// SPDX-License-Identifier: Apache-2.0
// Anchor: the measured change of the KV of one text in one place of one agent's prompt (KVComm). An anchor is immutable
// and lives in host memory; its keys are before RoPE, so it has no position.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/anchors/token_sketch.h"
#include "engine/reuse/place.h"

namespace baton {

using SharedText = std::shared_ptr<const SketchedText>;

struct Anchor {
  KvWidth shape;
  SharedText text;                 // its first `length` tokens have KV
  std::vector<SharedText> before;  // the texts of the placeholders before it in the same prompt
  std::int32_t length = 0;         // n
  std::int32_t following = 0;      // t: tokens of the fixed text after it
  /// [L, n, 2 K D] bf16: keys before RoPE, then values; the KV in the prompt minus the KV that was handed over.
  std::span<const std::uint16_t> offset;
  std::span<const std::uint16_t> text_kv;  // [L, t, 2 K D] bf16: keys before RoPE, then values of the fixed text
  std::shared_ptr<const void> owner;       // owns `offset` and `text_kv`
  mutable std::atomic<std::uint64_t> uses{0};

  std::int64_t bytes() const;
  /// The offsets of one layer, [n, 2 K D].
  std::span<const std::uint16_t> offset_of(std::int32_t layer) const {
    const auto rows = static_cast<std::size_t>(length) * 2 * static_cast<std::size_t>(shape.width);
    return offset.subspan(static_cast<std::size_t>(layer) * rows, rows);
  }
  std::span<const std::uint16_t> text_of(std::int32_t layer) const {
    const auto rows = static_cast<std::size_t>(following) * 2 * static_cast<std::size_t>(shape.width);
    return text_kv.subspan(static_cast<std::size_t>(layer) * rows, rows);
  }
};

using SharedAnchor = std::shared_ptr<const Anchor>;

/// The measured error of a pool's correction, from a turn that was computed in full.
struct AnchorRecord {
  float distance = 0.0f;  // distance of the text from the nearest anchor
  float error = 0.0f;     // |corrected - true| / |true| over K and V of all layers but the first
  float plain = 0.0f;     // the error without a correction
};

}  // namespace baton
