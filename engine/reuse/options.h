// SPDX-License-Identifier: Apache-2.0
// What a request says about reuse: the method and its parameters.
#pragma once

#include <cstdint>
#include <string>

#include "engine/reuse/methods.h"

namespace baton {

/// Which layers RelayCaching or DroidSpeak recompute (docs/methods.md). Layers count from 0.
struct LayerRange {
  std::int32_t start = 0;   // l_s: reused tokens enter here from their hidden states; 0: from their embeddings
  std::int32_t detect = 0;  // l_d: values are compared, and tokens chosen
  std::int32_t end = 0;     // l_e: the last layer of the chosen tokens
  bool valid(std::int32_t layers) const { return 0 <= start && start < detect && detect < end && end < layers; }

  /// DroidSpeak's: the group [first, last], in which no token is chosen.
  static LayerRange group(std::int32_t first, std::int32_t last) { return {first, first, last}; }
  bool is_group(std::int32_t layers) const { return 0 <= start && start == detect && start < end && end < layers; }
};

/// Which tokens of a segment RelayCaching recomputes beyond the detection layer.
struct SelectionOptions {
  enum class Score : std::uint8_t { deviation, entropy, author };
  bool deviation = true;     // d_i > deviation_threshold * mean(d), eq. 5
  bool influence = true;     // A_j > influence_threshold * mean(A), eq. 7
  std::int32_t suffix = 10;  // the last tokens of the segment, eq. 8
  std::int32_t head = 0;     // its first tokens, which lost the most of their context (not in the paper)
  float deviation_threshold = 1.5f;
  float influence_threshold = 1.45f;
  double share = 0.0;  // above 0: exactly this part of each segment, the best by score, not by thresholds
  /// entropy (ours): tokens that their author was least sure of. It is known before anything runs, so these segments
  /// need no detection; only chosen tokens run, from range.start to range.end. Texts that nobody generated have none
  /// and go by deviation.
  /// author (ours): entropy and the attention received before, each as a part of its sum over the segment. Texts that
  /// nobody generated go by the attention alone.
  Score score = Score::deviation;
  bool all = false;  // every token: the layer range alone

  static SelectionOptions by_author() { return {.suffix = 8, .head = 16, .share = 0.32, .score = Score::author}; }
};

/// KVComm (docs/methods.md): KV of a placeholder is corrected by what was seen to happen to similar texts before.
struct AnchorOptions {
  enum class Gate : std::uint8_t { error, entropy, none };
  enum class Offsets : std::uint8_t { weighted, nearest, none };
  enum class Text : std::uint8_t { computed, offset, base };
  std::int32_t size = 20;  // anchors of one pool
  /// error (ours): what corrections of this pool were seen to leave, at a text's distance. entropy: the paper's eq. 5.
  /// none: whatever the pool has.
  Gate gate = Gate::error;
  float trust = 0.1f;       // gate error: up to this relative error of K and V a placeholder is only corrected
  float refuse = 0.16f;     // above this one it is computed in full; in between its uncertain tokens are recomputed
  double recompute = 0.15;  // that part of them
  float gamma = 0.3f;       // gate entropy: a text whose weights have more than gamma log(anchors) nats is a new anchor
  Offsets offsets = Offsets::weighted;
  Text text = Text::computed;  // fixed text behind a placeholder: run, or from the anchors, or as it was seen first
  bool aligned = true;         // tokens find their counterparts by edit distance; false: by index, as in the paper
  bool rotate = true;          // false: keys stay at their author's positions (to measure what rotation is worth)
  std::int32_t check = 32;     // one turn in so many is computed in full, to measure the error; 0: none
  std::string pool;            // pools of different names share nothing
  bool operator==(const AnchorOptions&) const = default;
};

struct ReuseOptions {
  const Method* method = &baton::method_of(MethodId::full);
  /// rectify; not valid: that of the engine's model. droidspeak: the group, at whose first layer authors keep hidden
  /// states.
  LayerRange range;
  SelectionOptions selection = SelectionOptions::by_author();  // rectify
  bool correct = true;             // rectify: by what was learned for the place (linear_correction.h), where it was
  std::int32_t epic_tokens = 16;   // epic: the first tokens of each segment that are recomputed (LegoLink-k)
  double cacheblend_share = 0.15;  // cacheblend: the part of the reused tokens that is recomputed
  AnchorOptions anchors;           // anchors; lockstep with a tolerance
  /// lockstep: above 0, what was not computed ahead may be corrected by anchors where that is expected to leave no
  /// larger relative error of K and V, and to be faster.
  float tolerance = 0.0f;
  std::int32_t min_tokens = 32;  // shorter segments are computed in full
  bool prefix = true;            // methods but full also take exact prefixes
  bool record = false;           // the output and the slots become segments
};

/// A method that computes ahead and may fall back to anchors.
inline bool is_tolerant(const ReuseOptions& reuse) { return reuse.method->ahead && reuse.tolerance > 0.0f; }
/// Anchors correct KV, and learn.
inline bool takes_anchors(const ReuseOptions& reuse) { return reuse.method->anchors || is_tolerant(reuse); }
/// The method places segments, so its KV is approximate. The others are exact.
inline bool takes_segments(const ReuseOptions& reuse) { return reuse.method->segments || is_tolerant(reuse); }

}  // namespace baton
