// SPDX-License-Identifier: Apache-2.0
// How far tokens are from each other in a model's input embeddings, from short sketches of them (random projections:
// distances stay within a few percent, and comparing two tokens costs the same for every model).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/alignment.h"
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

/// Where the backend may be called: on the engine's thread.
class TokenSketcher {
 public:
  TokenSketcher(Backend& backend, const Model& model)
      : backend_(backend), model_(model), host_memory_(backend.info().host_memory) {}

  std::shared_ptr<const SketchedText> sketch(std::span<const TokenId> tokens);

  /// Where in table() the sketches of a text's tokens are; empty where one of them is none of the model's.
  std::vector<std::int32_t> rows_of(const SketchedText& text);
  /// All sketches so far [rows, kSketch] f32, for the backend; until the next call of another member.
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
  float scale_ = 0.0f;                  // 1 / the typical distance of two tokens; 0: not known yet
  std::vector<std::int32_t> known_;     // [V] where in sketches_; below 0: not there
  std::vector<float> sketches_;         // [rows, kSketch]
  Buffer device_;                       // the same, where the backend does not read host memory
  std::size_t sent_ = 0;                // bytes of sketches_ that are there
};

}  // namespace baton
