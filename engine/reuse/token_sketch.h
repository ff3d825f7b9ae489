// How far tokens are from each other in a model's input embeddings, from short sketches of them (random projections:
// distances stay within a few percent, and comparing two tokens costs the same for every model).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/model/model.h"

namespace baton {

/// Token ids with their sketches; equal ids give equal hashes. Immutable and shared.
struct SketchedText {
  std::vector<TokenId> tokens;
  std::vector<float> sketch;  // [n, kSketch]
  std::uint64_t hash = 0;

  static constexpr std::int64_t kSketch = 32;
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

std::uint64_t hash_of(std::span<const TokenId> tokens, std::uint64_t seed = 0);

/// 0 for equal tokens, 1 for two that are as far from each other as any.
float token_distance(const float* a, const float* b);

/// Where the backend may be called: on the engine's thread.
class TokenSketcher {
 public:
  TokenSketcher(Backend& backend, const Model& model) : backend_(backend), model_(model) {}

  std::shared_ptr<const SketchedText> sketch(std::span<const TokenId> tokens);

 private:
  void project(std::span<const TokenId> tokens);
  void set_scale();

  Backend& backend_;
  const Model& model_;
  std::unique_ptr<Matrix> projection_;              // [kSketch, C]
  float scale_ = 0.0f;                              // 1 / the typical distance of two tokens; 0: not known yet
  std::unordered_map<TokenId, std::size_t> known_;  // where in sketches_
  std::vector<float> sketches_;
};

}  // namespace baton
