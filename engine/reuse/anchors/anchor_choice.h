// SPDX-License-Identifier: Apache-2.0
// What a pool of anchors makes of a text: near enough to be corrected, a new anchor, or neither (KVComm eq. 5; ours:
// docs/decisions/0015).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/reuse/anchors/alignment.h"
#include "engine/reuse/anchors/anchor.h"
#include "engine/reuse/options.h"

namespace baton {

/// A pool at one moment.
struct AnchorPoolView {
  std::vector<SharedAnchor> anchors;
  std::vector<AnchorRecord> records;  // the newest
  std::uint64_t turns = 0;            // that asked the pool
  std::uint64_t since_learning = 0;   // turns since the last that was computed in full
};

struct AnchorChoice {
  enum class Kind : std::uint8_t {
    hit,     // corrected
    refine,  // corrected; uncertain tokens are recomputed
    refuse,  // computed: the pool cannot predict such texts
    learn,   // all of the prompt is computed, and the text becomes an anchor
  };
  Kind kind = Kind::learn;
  std::vector<SharedAnchor> anchors;  // those that count, and beside them their weights (sum 1) and alignments
  std::vector<float> weights;
  std::vector<std::shared_ptr<const Alignment>> alignments;
  float distance = 1.0f;   // of the nearest anchor
  float ambiguity = 0.0f;  // entropy of the weights over log(anchors), 0 to 1
  float error = -1.0f;     // predicted, relative; below 0: not known
  std::string reason;

  /// [n] how little each token is like its counterparts, 0 to 1.
  std::vector<float> mismatch(std::int32_t n) const;
};

/// Alignments of pairs of texts; an agent's answer meets the same anchors in each prompt that reads it. One thread.
class AlignmentMemo {
 public:
  std::shared_ptr<const Alignment> find(const SharedText& text, const SharedText& other, bool aligned);
  void add(const SharedText& text, const SharedText& other, Alignment alignment);
  /// True when the pair has not been aligned, nor asked for by this: whoever asks will add it.
  bool expects(const SharedText& text, const SharedText& other);
  /// Begins anew where it has grown large.
  void trim();

 private:
  using Known = std::unordered_map<std::uint64_t, std::shared_ptr<const Alignment>>;
  bool is_of(const Known::const_iterator& entry, const SketchedText& text) const;
  std::shared_ptr<const Alignment> keep(std::uint64_t key, Alignment alignment);

  std::size_t tokens_ = 0;  // of all that are known
  Known known_;             // null: expected
};

AnchorChoice choose_anchors(const AnchorOptions& options, const AnchorPoolView& pool, const SharedText& text,
                            std::span<const SharedText> before, AlignmentMemo& memo);

}  // namespace baton
