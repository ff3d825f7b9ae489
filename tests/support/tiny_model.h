// SPDX-License-Identifier: Apache-2.0
// Small models with seeded random weights and a byte-level tokenizer, made in memory: for tests of everything that
// needs a model but not a trained one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace baton::test {

struct TinyOptions {
  std::int32_t layers = 3;
  std::int32_t width = 48;
  std::int32_t heads = 6;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 16;
  std::int32_t ffn_width = 80;
  std::int32_t vocabulary = 258;  // at least that
  std::int32_t context = 512;
  std::int32_t window = 0;  // sliding window of every second layer
  bool qk_norm = false;
  bool bias = false;
  std::int32_t experts = 0;  // a mixture in all layers but the first; a token has two
  bool nope = false;         // every second layer is without RoPE
  bool gemma = false;  // what Gemma 3 has: norms after attention and MLP, gelu, RoPE of its own where a window is, ...
  bool olmo = false;   // what Olmo 3 has: norms after attention and MLP alone, a norm of all heads of a row
  bool mixed = false;  // Granite's multipliers, GLM's heads rotated in part, Ministral's temperature, a shared expert
  bool sinks = false;  // what gpt-oss has: sinks of attention, a clamped gate, biases of experts
  /// What Gemma 4 has: heads by layer, shared KV, per-layer embeddings, an MLP beside the experts. Needs a window.
  bool gemma4 = false;
  /// What Gemma 3n has: four residual streams, LAuReL, sparse gates, shared KV, per-layer embeddings. Needs a window.
  bool gemma3n = false;
  std::vector<LayerKind> mixers;  // one of each layer; empty: all attention
  DType dtype = DType::bf16;
  std::optional<BlockType> blocks;  // matrices are quantised; widths must be whole blocks
  DType kv_dtype = DType::bf16;
  DType activations = DType::f32;
  std::uint64_t seed = 1;
  bool kept = true;  // Device::keep has the vectors
  std::vector<TokenId> eos_tokens = {257};
  std::shared_ptr<const ChatTemplate> chat_template = nullptr;
};

/// A model whose matrices are blocks of the type.
TinyOptions quantized_tiny(BlockType type);

/// A model of five layers as Gemma 4, with experts or without: layers 3 and 4 read the KV of layers 1 and 2.
TinyOptions gemma4_tiny(std::int32_t experts);

/// A model of five layers as Gemma 3n: layers 3 and 4 read the KV of layers 1 and 2.
TinyOptions gemma3n_tiny();

/// A model with attention in its second layer, and recurrent layers of a kind in the others.
TinyOptions hybrid_tiny(LayerKind kind);

/// Vocabulary: token b is byte b, then <|start|> (256) and <|end|> (257), the EOS.
std::shared_ptr<const Model> make_tiny_model(Backend& backend, const TinyOptions& options);

using baton::byte_tokenizer_json;

/// Random token ids of ordinary text (no special tokens).
std::vector<TokenId> random_tokens(std::size_t count, std::uint64_t seed);

/// The whole file; throws std::runtime_error when it cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace baton::test
