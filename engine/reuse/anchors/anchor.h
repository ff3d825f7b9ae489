// SPDX-License-Identifier: Apache-2.0
// Anchor: what happened to the KV of one text when it was read in one place of one agent's prompt (KVComm). Immutable,
// in host memory, before RoPE: an anchor has no position.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/anchors/token_sketch.h"

namespace baton {

using SharedText = std::shared_ptr<const SketchedText>;

/// Widths of the KV that an anchor speaks of.
struct AnchorShape {
  std::int32_t layers = 0;  // L
  std::int32_t width = 0;   // K * D
  bool operator==(const AnchorShape&) const = default;
};

struct Anchor {
  AnchorShape shape;
  SharedText text;                 // the first `length` tokens of which have KV
  std::vector<SharedText> before;  // the placeholders in front of it, in the same prompt
  std::int32_t length = 0;         // n
  std::int32_t following = 0;      // t: tokens of the fixed text behind it
  /// [L, n, 2 K D] bf16: keys before RoPE, then values, in the prompt minus those of the text as it was handed over.
  std::span<const std::uint16_t> offset;
  std::span<const std::uint16_t> text_kv;  // [L, t, 2 K D] bf16: keys before RoPE and values of the text behind it
  std::shared_ptr<const void> owner;       // of both
  mutable std::atomic<std::uint64_t> uses{0};

  std::int64_t bytes() const;
  /// Offsets of one layer, [n, 2 K D].
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

/// Where in which prompts: the model is the store's own.
struct AnchorKey {
  std::uint64_t context = 0;  // hash of the fixed text and the names before the placeholder, and the text behind it
  std::string slot;
  std::string pool;  // AnchorOptions::pool
  auto operator<=>(const AnchorKey&) const = default;
};

/// What a pool's corrections left when the truth was known.
struct AnchorRecord {
  float distance = 0.0f;  // of the text from the nearest anchor
  float error = 0.0f;     // |corrected - true| / |true| over K and V of all layers but the first
  float plain = 0.0f;     // the same without a correction
};

}  // namespace baton
