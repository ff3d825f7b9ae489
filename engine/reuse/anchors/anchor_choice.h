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
#include "engine/reuse/options.h"

namespace baton {

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
