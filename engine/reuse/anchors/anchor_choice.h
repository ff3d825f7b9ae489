// SPDX-License-Identifier: Apache-2.0
// The decision of an anchor pool about a text: correct it, make it a new anchor, or compute it in full (KVComm eq. 5;
// ours: docs/decisions/anchors.md).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/anchors/anchor.h"
#include "engine/reuse/anchors/token_sketch.h"

namespace baton {

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

/// A pool at one moment.
struct AnchorPoolView {
  std::vector<SharedAnchor> anchors;
  std::vector<AnchorRecord> records;  // the newest
  std::uint64_t turns = 0;            // turns that asked the pool
  std::uint64_t since_learning = 0;   // turns since the last one that was computed in full
};

struct AnchorChoice {
  enum class Kind : std::uint8_t {
    hit,     // the text is corrected
    refine,  // the text is corrected, and its uncertain tokens are recomputed
    refuse,  // the text is computed, because the expected error is too large
    learn,   // all of the prompt is computed, and the text becomes an anchor
  };
  Kind kind = Kind::learn;
  std::vector<SharedAnchor> anchors;  // anchors of nonzero weight; parallel to weights (sum 1) and alignments
  std::vector<float> weights;
  std::vector<std::shared_ptr<const Alignment>> alignments;
  float distance = 1.0f;   // distance of the nearest anchor
  float ambiguity = 0.0f;  // entropy of the weights over log(anchors), 0 to 1
  float error = -1.0f;     // predicted relative error; below 0: unknown
  std::string reason;

  /// Returns [n]: the distance of each token from its counterparts in the anchors, 0 to 1.
  std::vector<float> mismatch(std::int32_t n) const;
};

/// Memo of the alignments of pairs of texts, since every prompt that reads an answer compares it with the same anchors.
/// Not thread-safe.
class AlignmentMemo {
 public:
  /// Tokens of a memo from which on it is cleared before another pair is aligned.
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 21;

  std::shared_ptr<const Alignment> find(const SharedText& text, const SharedText& other, bool aligned);
  void add(const SharedText& text, const SharedText& other, Alignment alignment);
  /// Returns true when the pair is neither aligned nor already expected; the caller must then add the alignment.
  bool expects(const SharedText& text, const SharedText& other);
  /// Clears the memo when it has grown large. find() does so by itself.
  void trim();
  /// Tokens of all alignments, and one for each pair.
  std::size_t tokens() const { return tokens_; }

 private:
  using Known = std::unordered_map<std::uint64_t, std::shared_ptr<const Alignment>>;
  bool is_of(const Known::const_iterator& entry, const SketchedText& text) const;
  std::shared_ptr<const Alignment> keep(std::uint64_t key, Alignment alignment);

  std::size_t tokens_ = 0;
  Known known_;  // null values: expected
};

/// The distance of a text's input embeddings from those of the first tokens of another, which is at least as long.
using EmbeddingDistance = std::function<double(const SketchedText& text, const SketchedText& other)>;

/// Decides about `text` in a prompt whose earlier placeholders hold `before`. `embedding_distance` is asked where the
/// options are as published.
AnchorChoice choose_anchors(const AnchorOptions& options, const AnchorPoolView& pool, const SharedText& text,
                            std::span<const SharedText> before, AlignmentMemo& memo,
                            const EmbeddingDistance& embedding_distance = {});

}  // namespace baton
