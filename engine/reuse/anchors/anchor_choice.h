// SPDX-License-Identifier: Apache-2.0
// Anchors and the decision of an anchor pool about a text: correct it, make it a new anchor, or compute it in full
// (after KVComm eq. 5: docs/decisions/anchors.md). Texts are compared by the distances of their tokens in the
// model's input embeddings, from short sketches of the embeddings: random projections, so that distances stay within a
// few percent, and comparing two tokens costs the same for every model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/backend/host_operations.h"
#include "engine/model/model.h"
#include "engine/reuse/prompt_part.h"

namespace baton {

/// Token ids with their sketches; equal ids give equal hashes. Immutable and shared.
struct SketchedText {
  std::vector<TokenId> tokens;
  std::vector<float> sketch;  // [n, kSketch]
  std::uint64_t hash = 0;

  static constexpr std::int64_t kSketch = editing::kSketchWidth;
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

std::uint64_t hash_of(std::span<const TokenId> tokens, std::uint64_t seed = 0);

/// Used by the engine's thread only, since it calls the backend.
class TokenSketcher {
 public:
  TokenSketcher(Backend& backend, const Model& model)
      : backend_(backend), model_(model), host_memory_(backend.info().host_memory) {}

  std::shared_ptr<const SketchedText> sketch(std::span<const TokenId> tokens);

  /// Returns the rows of table() that hold the sketches of a text's tokens; empty when a token is not in the model's
  /// vocabulary.
  std::vector<std::int32_t> rows_of(const SketchedText& text);
  /// Returns all sketches so far, [rows, kSketch] f32 in backend memory, valid until the next call of another member.
  ConstTensorView table();

 private:
  void project(std::span<const TokenId> tokens);
  void sketch_fresh(std::span<const TokenId> tokens, std::span<float> made);
  void set_scale();
  const float* row_of(TokenId id) const {
    return &sketches_[static_cast<std::size_t>(known_[static_cast<std::size_t>(id)]) * editing::kSketchWidth];
  }

  Backend& backend_;
  const Model& model_;
  const bool host_memory_;
  std::unique_ptr<Matrix> projection_;  // [kSketch, C]
  float scale_ = 0.0f;                  // 1 / the typical distance of two tokens; 0: not measured yet
  std::vector<std::int32_t> known_;     // [V] row of sketches_; below 0: none yet
  std::vector<float> sketches_;         // [rows, kSketch]
  Buffer device_;                       // copy of sketches_, where the backend does not read host memory
  std::size_t sent_ = 0;                // bytes of sketches_ that were uploaded
};

Alignment align(const SketchedText& text, const SketchedText& other);

/// Pairs token i with token i, as in the paper. The distance is the root mean square of the tokens' distances. Throws
/// std::invalid_argument when `other` is shorter than `text`.
Alignment align_by_index(const SketchedText& text, const SketchedText& other);

using SharedText = std::shared_ptr<const SketchedText>;

struct Anchor {
  KvWidth shape;
  SharedText text;                 // its first `length` tokens have KV
  std::vector<SharedText> before;  // the texts of the placeholders before it in the same prompt
  std::int32_t length = 0;         // n
  std::int32_t following = 0;      // t: tokens of the fixed text after it
  /// Of each layer [n, 2 K D] bf16: keys before RoPE, then values; the KV in the prompt minus the KV that was handed
  /// over.
  std::span<const std::uint16_t> offset;
  std::span<const std::uint16_t> text_kv;  // of each layer [t, 2 K D] bf16: the same of the fixed text
  std::shared_ptr<const void> owner;       // owns `offset` and `text_kv`
  mutable std::atomic<std::uint64_t> uses{0};

  std::int64_t bytes() const;
  /// The offsets of one layer, [n, 2 K D].
  std::span<const std::uint16_t> offset_of(std::int32_t layer) const { return layer_of(offset, length, layer); }
  std::span<const std::uint16_t> text_of(std::int32_t layer) const { return layer_of(text_kv, following, layer); }
  std::span<const std::uint16_t> layer_of(std::span<const std::uint16_t> all, std::int64_t rows,
                                          std::int32_t layer) const {
    return all.subspan(static_cast<std::size_t>(2 * rows * shape.before(layer)),
                       static_cast<std::size_t>(2 * rows * shape.layer(layer)));
  }
};

using SharedAnchor = std::shared_ptr<const Anchor>;

/// The measured error of a pool's correction, from a turn that was computed in full.
struct AnchorRecord {
  float distance = 0.0f;  // distance of the text from the nearest anchor
  float error = 0.0f;     // |corrected - true| / |true| over K and V of all layers but the first
  float plain = 0.0f;     // the error without a correction
};

/// After KVComm (docs/methods.md): the KV of a placeholder is corrected by the measured change of similar texts.
struct AnchorOptions {
  enum class Gate : std::uint8_t { error, entropy, none };
  enum class Offsets : std::uint8_t { weighted, nearest, none };
  enum class Text : std::uint8_t { computed, offset, base };
  std::int32_t size = 20;  // maximum anchors of one pool
  /// error (ours): the expected error of the correction, from the errors measured in this pool at the text's distance.
  /// entropy: after the paper's eq. 5. none: every text is corrected if the pool has an anchor.
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

/// Decides about `text` in a prompt whose earlier placeholders hold `before`.
AnchorChoice choose_anchors(const AnchorOptions& options, const AnchorPoolView& pool, const SharedText& text,
                            std::span<const SharedText> before, AlignmentMemo& memo);

}  // namespace baton
