// SPDX-License-Identifier: Apache-2.0
// Distances of tokens in a model's input embeddings, from short sketches of the embeddings. A sketch is a random
// projection: distances stay within a few percent, and comparing two tokens costs the same for every model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/host_operations.h"
#include "engine/model/model.h"

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

  /// Returns the Euclidean norm of the difference between a text's input embeddings [n, C] and those of the first n
  /// tokens of another: computed from the embeddings themselves. `other` must not be shorter.
  double embedding_distance(const SketchedText& text, const SketchedText& other);

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

}  // namespace baton
