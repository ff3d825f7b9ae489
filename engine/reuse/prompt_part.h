// SPDX-License-Identifier: Apache-2.0
// The parts of a prompt, and how the KV of each was obtained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/kv/segment_handle.h"
#include "engine/reuse/method.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A prompt is a list of parts, each already token ids: fixed text, or the value of a placeholder.
struct PromptPart {
  std::string slot;  // placeholder name; empty for fixed text
  std::vector<TokenId> tokens;
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
  bool corrected = false;            // a learned correction was added (Calibration::corrections)
  std::string reason;                // why the method differs from the one that the request names
  std::int64_t reused_tokens = 0;    // tokens neither computed in full nor chosen by the method to be recomputed
  std::int64_t kv_reused = 0;        // reused entries (tokens x layers)
  std::int64_t kv_reusable = 0;      // upper bound of kv_reused: the method recomputes its layers and chooses no token
  std::int64_t ahead_tokens = 0;     // tokens computed before all of the prompt was known
  int hops = 0;                      // the segment's hops
  std::vector<NamedNumber> numbers;  // of the method, for the record; empty: none
};

}  // namespace baton
