// SPDX-License-Identifier: Apache-2.0
// The parts of a prompt, how the KV of each was obtained, and their places: a placeholder with the fixed text around
// it. What is learned of texts belongs to a place.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token_text.h"
#include "engine/kv/segment.h"
#include "engine/kv/segment_handle.h"
#include "engine/reuse/method.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A prompt is a list of parts, each already token ids: fixed text, or the value of a placeholder.
struct PromptPart {
  std::string slot;  // placeholder name; empty for fixed text
  TokenText tokens;
  SegmentHandle segment;     // KV of exactly these tokens, from the same engine; may be null
  std::int64_t readers = 0;  // above 0: the part becomes a segment for this many later readers
  bool export_kv = false;    // some of these readers are engines of other models (InferenceEngine::exported_kv)
  /// Used when `segment` is null: KV of exactly these tokens from an engine of another model in the same format
  /// (kv_difference). May be null.
  std::shared_ptr<const Segment> imported_kv;
  std::string why_no_kv;  // for the report: why both `segment` and `imported_kv` are null
};

/// A number with which a method describes what it did with a text.
struct NamedNumber {
  std::string_view name;
  double value = 0.0;
};

/// How the KV of one part of the prompt was obtained.
struct PartUse {
  const Method* method = &full_method();  // full, prefix, or the request's method
  bool from_segment = false;
  bool lost = false;                 // its KV was there, or was to be, and memory was short: `reason` says where
  bool corrected = false;            // a learned correction was added (Calibration::corrections)
  std::string reason;                // why the method differs from the one that the request names
  std::int64_t reused_tokens = 0;    // tokens neither computed in full nor chosen by the method to be recomputed
  std::int64_t kv_reused = 0;        // reused entries (tokens x layers)
  std::int64_t kv_reusable = 0;      // upper bound of kv_reused: the method recomputes its layers and chooses no token
  std::int64_t ahead_tokens = 0;     // tokens computed before all of the prompt was known
  int hops = 0;                      // the segment's hops
  std::vector<NamedNumber> numbers;  // of the method, for the record; empty: none
};

struct LinearCorrection;

struct PlaceKey {
  std::uint64_t context = 0;  // hash of the fixed text and names before the placeholder, and of the text after it
  std::string slot;
  std::string pool;  // name of a pool; places of different pools share nothing
  auto operator<=>(const PlaceKey&) const = default;
};

/// Returns the key of each part of a prompt. A placeholder's key covers the fixed text and the names before the
/// placeholder, and the fixed text after it. The key of a part of fixed text is empty.
std::vector<PlaceKey> places_of(std::span<const PromptPart> prompt, const std::string& pool);

/// The widths of one token's keys in the layers of a model; its values are as wide.
struct KvWidth {
  std::vector<std::int32_t> of;  // [L] K * D; 0: the layer stores no KV
  bool operator==(const KvWidth&) const = default;

  std::int32_t layers() const { return static_cast<std::int32_t>(of.size()); }
  std::int64_t layer(std::int32_t index) const { return of[static_cast<std::size_t>(index)]; }
  /// Returns the sum of the widths of the layers before this one.
  std::int64_t before(std::int32_t index) const;
  std::int64_t total() const { return before(layers()); }
};
KvWidth width_of(const KvLayout& layout);

/// A text with its computed KV in a prompt and the KV that was handed over with it. bf16, in host memory.
struct PlaceSample {
  PlaceKey key;
  std::string reader;  // the agent whose prompt holds the text
  KvWidth shape;
  std::int32_t length = 0;           // n
  std::vector<std::uint16_t> truth;  // of each layer [n, 2 K D] keys before RoPE, then values
  std::vector<std::uint16_t> base;   // of each layer [n, 2 K D]
  bool generated = false;            // the text is an answer
};

/// The learned corrections by place, a key without a pool. Immutable, so safe from any thread.
using Corrections = std::map<PlaceKey, std::shared_ptr<const LinearCorrection>>;

}  // namespace baton
