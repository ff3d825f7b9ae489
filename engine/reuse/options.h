// SPDX-License-Identifier: Apache-2.0
// The reuse options of a request: the method and its parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/reuse/methods.h"

namespace baton {

/// The layers that RelayCaching or DroidSpeak recompute (docs/methods.md). Layers count from 0.
struct LayerRange {
  std::int32_t start = 0;   // l_s: reused tokens enter here from their hidden states; 0: from their embeddings
  std::int32_t detect = 0;  // l_d: values are compared and tokens are chosen
  std::int32_t end = 0;     // l_e: the last layer of the chosen tokens
  bool operator==(const LayerRange&) const = default;
  bool given() const { return *this != LayerRange{}; }
  bool valid(std::int32_t layers) const { return 0 <= start && start < detect && detect < end && end < layers; }

  /// rectify's layers where a profile names no others (docs/decisions/rectify.md); not valid in models of fewer
  /// than three layers.
  static LayerRange by_depth(std::int32_t layers) { return {layers / 8, layers / 8 + 1, layers * 2 / 3}; }

  /// DroidSpeak's layers: the group [first, last], in which no token is chosen.
  static LayerRange group(std::int32_t first, std::int32_t last) { return {first, first, last}; }
  bool is_group(std::int32_t layers) const { return 0 <= start && start == detect && start < end && end < layers; }
};

/// The choice of the tokens of a segment that RelayCaching recomputes after the detection layer.
struct SelectionOptions {
  enum class Score : std::uint8_t { deviation, entropy, author, paper, change };
  bool deviation = true;     // d_i > deviation_threshold * mean(d), eq. 5
  bool influence = true;     // A_j > influence_threshold * mean(A), eq. 7
  std::int32_t suffix = 10;  // the last tokens of the segment, eq. 8
  std::int32_t head = 0;     // the first tokens, which lost most of their context (ours)
  float deviation_threshold = 1.5f;
  float influence_threshold = 1.45f;
  double share = 0.0;       // above 0: exactly this fraction, of all segments (by change) or of each, not by thresholds
  std::int32_t count = -1;  // not negative: exactly this many tokens, in place of `share`
  /// deviation: the paper's score. entropy (ours): the tokens whose author was least certain. The entropy is known
  /// before the prompt runs, so these segments need no detection, and only chosen tokens run, from range.start to
  /// range.end. Texts that were not generated have no entropy; their tokens are chosen by deviation.
  /// author (ours): the sum of entropy and received attention, each as a fraction of its sum over the segment. Tokens
  /// of texts that were not generated are chosen by the attention alone.
  /// paper: RelayCaching's rules. With a share, the larger of a token's deviation and received attention, each as a
  /// multiple of its threshold times the mean: the union of both rules, their thresholds multiplied by one factor.
  /// change (ours, after CacheBlend): the tokens with the largest product of two things in layer l_d, how far their
  /// values move (distance over all heads) and how much attention the text behind the segments gives them, over all
  /// segments of the prompt together.
  Score score = Score::deviation;
  bool all = false;  // every token: the layer range alone

  static SelectionOptions by_paper() { return {.score = Score::paper}; }
  static SelectionOptions by_change() { return {.suffix = 0, .share = 0.2, .score = Score::change}; }
  static SelectionOptions by_author() { return {.suffix = 8, .head = 16, .share = 0.32, .score = Score::author}; }
};

/// KVComm (docs/methods.md): the KV of a placeholder is corrected by the measured change of similar texts.
struct AnchorOptions {
  enum class Gate : std::uint8_t { error, entropy, none };
  enum class Offsets : std::uint8_t { weighted, nearest, none };
  enum class Text : std::uint8_t { computed, offset, base };
  std::int32_t size = 20;  // maximum anchors of one pool
  /// error (ours): the expected error of the correction, from the errors measured in this pool at the text's distance.
  /// entropy: the paper's eq. 5. none: every text is corrected if the pool has an anchor.
  Gate gate = Gate::error;
  float trust = 0.1f;       // gate error: up to this relative error of K and V, a placeholder is only corrected
  float refuse = 0.16f;     // above this error it is computed in full; in between, uncertain tokens are recomputed
  double recompute = 0.15;  // the fraction of tokens that are recomputed in between
  float gamma = 0.3f;       // gate entropy: a text whose weights have more than gamma log(anchors) nats is a new anchor
  Offsets offsets = Offsets::weighted;
  Text text = Text::computed;  // fixed text after a placeholder: run, from the anchors' offsets, or as first seen
  bool aligned = true;         // tokens are paired by edit distance; false: by index, as in the paper
  bool rotate = true;          // false: keys stay at their author's positions (to measure the effect of rotation)
  std::int32_t check = 32;     // one turn in `check` is computed in full to measure the error; 0: none
  std::string pool;            // name of the pools; pools of different names share nothing
  /// Weights and gate as KVComm published them: a softmax over -d, d the distance of the input embeddings, without a
  /// temperature; a text is an anchor where eq. 5 says so, and nothing else is looked at.
  bool as_published = false;
  static AnchorOptions by_paper(AnchorOptions options) {
    options.gate = Gate::entropy;
    options.offsets = Offsets::weighted;
    options.text = Text::offset;
    options.aligned = false;
    options.rotate = true;
    options.check = 0;
    options.as_published = true;
    return options;
  }
  bool operator==(const AnchorOptions&) const = default;
};

/// The method of a request and the parameters of all methods.
struct ReuseOptions {
  enum class Blend : std::uint8_t { values, cosine };
  const Method* method = &baton::method_of(MethodId::full);
  /// rectify: the layer range; one that is not given means that of the engine's model. droidspeak: the group of layers;
  /// authors store hidden states at its first layer.
  LayerRange range;
  bool paper_layers = false;  // rectify: a missing range is that of RelayCaching's own profiler
  SelectionOptions selection = SelectionOptions::by_change();  // rectify
  bool correct = true;             // rectify: add the learned correction (engine/reuse/rectify/corrections.h), if any
  std::int32_t epic_tokens = 16;   // epic: number of first tokens of each segment to recompute (LegoLink-k)
  double cacheblend_share = 0.15;  // cacheblend: the fraction of the reused tokens to recompute
  /// cacheblend: values: by the squared distance of values, over all segments of the prompt (CacheBlend). cosine
  /// (ours): by the cosine of values, each segment for itself.
  Blend cacheblend_score = Blend::values;
  /// droidspeak: the last layers of larger groups with the same first layer, ascending. A prompt recomputes the largest
  /// group with which it is expected to be complete `ttft_ms` milliseconds after its submission (group_in_time).
  std::vector<std::int32_t> group_ends{};
  double ttft_ms = 0.0;  // 0: the group is that of `range`
  /// Above 0: epic, cacheblend and rectify recompute as many tokens as leave this fraction of the segments' (token,
  /// layer) entries reused, in place of epic_tokens, cacheblend_share and the selection's share or thresholds.
  double reuse = 0.0;
  AnchorOptions anchors;
  /// auto: texts are rectified only where the mean KL divergence from full prefill over a turn is expected to be at
  /// most this, in nats per token. 0, also with verified: nothing is; the prompt's KV is exact.
  float tolerance = 0.02f;
  std::string exact_because;  // auto: why the prompt is exact, for the record
  float predicted = -1.0f;    // auto: the expected divergence, nats per token; below 0: unknown
  bool history = true;  // auto: the turns of the prompt's place are measured, and decide (engine/reuse/auto/levels.h)
  std::int32_t turns = 0;        // auto: measured turns of the place from which `predicted` follows; 0: the model's
  float max_left = -1.0f;        // auto: the prompt is computed in full when the guard measures more; below 0: never
  std::int32_t min_tokens = 32;  // shorter segments are computed in full
  std::int32_t max_hops = 0;     // above 0: so are segments of at least this many hops (Segment::hops)
  bool prefix = true;            // methods other than full also reuse exact prefixes
  bool record = false;           // the output and the slots become segments
};

/// True for auto and verified: texts are handed over or computed ahead, and which of both is decided for each prompt.
inline bool decides(const Method& method) { return method.segments && method.ahead; }

/// True when segments may be placed, so that the prompt's KV is approximate: by every method that hands KV over, and by
/// those that decide unless they are told to be exact.
inline bool takes_segments(const ReuseOptions& reuse) {
  return reuse.method->segments && !(decides(*reuse.method) && reuse.tolerance <= 0.0f);
}
/// True when readers may choose tokens by the attention that these received from their author. A request whose method
/// reads no segments does not say how its own are read.
inline bool reads_attention(const ReuseOptions& reuse) {
  if (!reuse.method->segments) return true;
  return reuse.method->id == MethodId::rectify && reuse.selection.score != SelectionOptions::Score::change;
}
/// The method that obtains the KV of a segment, and of tokens that were computed ahead, for the record.
inline const Method& segment_method(const ReuseOptions& reuse) {
  return reuse.method->id == MethodId::automatic ? method_of(MethodId::rectify) : *reuse.method;
}
inline const Method& ahead_method(const ReuseOptions& reuse) {
  return decides(*reuse.method) ? method_of(MethodId::lockstep) : *reuse.method;
}

}  // namespace baton
