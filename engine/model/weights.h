// SPDX-License-Identifier: Apache-2.0
// Where weights come from: a folder of safetensors files or a GGUF file. Names are those of Hugging Face's checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/base/files.h"
#include "engine/model/config.h"
#include "engine/tensor/block_types.h"

namespace baton {

/// A weight matrix [rows, cols] as a file holds it: rows of blocks, aligned for every element type.
struct StoredWeight {
  std::shared_ptr<const std::byte[]> data;  // nullptr: it is still in the file; see read and whole
  BlockType type = BlockType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  /// D, if the first R of the D outputs of each head are stored in the order of interleaved RoPE, whose pairs are
  /// (2 j, 2 j + 1); 0: outputs are stored in order. The engine's pairs are (j, j + R/2). Outputs are a matrix's rows,
  /// a bias's columns.
  /// Gates and ups of a feed-forward part that are stored in turn are one head of 2 F outputs.
  std::int32_t interleaved = 0;
  std::int32_t rotated = 0;  // R; 0: D
  /// Where each output is stored, of a weight that is neither interleaved nor in order; null: as above. Its rows may be
  /// fewer than the tensor's.
  std::shared_ptr<const std::vector<std::int64_t>> order = nullptr;

  /// Where `data` is nullptr: fills `out` with rows from `first` on, as they are stored. Throws ModelError when they
  /// cannot be read.
  std::function<void(std::span<std::byte> out, std::int64_t first)> read = nullptr;

  /// The same weight with all of its data in memory.
  StoredWeight whole() const {
    if (data != nullptr) return *this;
    const auto bytes = static_cast<std::size_t>(rows * row_bytes(type, cols));
    const auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
    read({memory.get(), bytes}, 0);
    return {memory, type, rows, cols, interleaved, rotated, order};
  }

  /// Where an output is stored.
  std::int64_t place(std::int64_t output) const {
    if (order) return (*order)[static_cast<std::size_t>(output)];
    if (interleaved == 0) return output;
    const std::int64_t head = output / interleaved * interleaved, at = output % interleaved;
    const std::int64_t pairs = rotated > 0 ? rotated : interleaved, half = pairs / 2;
    if (at >= pairs) return output;
    return head + (at < half ? 2 * at : 2 * (at - half) + 1);
  }
  /// The blocks of row `row` of the matrix, whose data is in memory.
  std::span<const std::byte> row(std::int64_t row) const {
    const std::int64_t bytes = row_bytes(type, cols);
    return {data.get() + place(row) * bytes, static_cast<std::size_t>(bytes)};
  }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual bool contains(const std::string& name) const = 0;
  /// The tensor as a matrix; a vector is [1, n]. Throws ModelError when it is missing, of another shape, of a type that
  /// the engine does not load, or cannot be read. The source has to outlive it.
  virtual StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const = 0;
  virtual std::size_t total_bytes() const = 0;
};

/// The weights of a checkpoint of which tensors have other names than those of a Llama, or hold all experts. Asked for
/// by the usual names.
class RenamedWeights final : public WeightSource {
 public:
  /// Both must outlive it.
  RenamedWeights(const WeightSource& files, const ModelConfig& config) : files_(files), config_(config) {}

  bool contains(const std::string& name) const override;
  StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const override;
  std::size_t total_bytes() const override { return files_.total_bytes(); }

 private:
  std::string stack_of(const std::string& theirs) const;
  StoredWeight expert(const std::string& stack, std::int64_t expert, std::int64_t rows, std::int64_t cols) const;

  const WeightSource& files_;
  const ModelConfig& config_;
  mutable std::string stack_;  // the tensor of all experts that was read last
  mutable StoredWeight whole_;
};

// The weights of a model on a backend.

/// One expert of a mixture.
struct ExpertWeights {
  std::unique_ptr<Matrix> gate_up;       // [2 F, C] with the experts' F
  std::unique_ptr<Matrix> down;          // [C, F]
  std::vector<float> gate_up_bias = {};  // [2 F] or empty
  std::vector<float> down_bias = {};     // [C] or empty
};

/// The mixer of a layer with a state; what its kind has.
struct RecurrentWeights {
  std::unique_ptr<Matrix> in;    // [P, C] all projections, stacked: see the kind's file in engine/model/layers/
  std::vector<float> in_bias;    // [P] or empty
  std::vector<float> taps;       // [K, columns] of the convolution
  std::vector<float> conv_bias;  // [columns] or empty
  std::vector<float> rate;       // [heads] -exp(A_log)
  std::vector<float> step_bias;  // [heads]
  std::vector<float> skip;       // [heads] of Mamba2
  std::vector<std::vector<float>> norms;  // of the result: [Dv], the same for all heads, or one for each group
  std::unique_ptr<Matrix> out;            // [C, inner]
  std::vector<float> out_bias;            // [C] or empty
};

/// What a layer does with its input of the row's token (engine/model/layers/token_input.cpp).
struct TokenInputWeights {
  std::unique_ptr<Matrix> gate;  // [P, C]
  std::unique_ptr<Matrix> out;   // [C, P]
  std::vector<float> norm;       // [C] of the result
};

/// What lies around the parts of a layer if there are several residual streams (engine/model/layers/altup.cpp).
struct AltUpWeights {
  std::vector<float> router_norm;      // [C], divided by C
  std::unique_ptr<Matrix> router;      // [N, C]
  std::unique_ptr<Matrix> predict;     // [N N, N]
  std::unique_ptr<Matrix> correct;     // [N, N]
  std::vector<float> correct_bias;     // [N] of ones
  std::vector<float> scale;            // [C] of what token inputs read, or empty
  std::unique_ptr<Matrix> laurel_in;   // [R, C]; null: there is no LAuReL
  std::unique_ptr<Matrix> laurel_out;  // [C, R]
  std::vector<float> laurel_norm;      // [C]
};

struct LayerWeights {
  std::vector<float> input_norm;   // [C] or empty
  std::unique_ptr<Matrix> qkv;     // [(H + 2K) D, C]: q, k, v stacked; behind them a gate [H D, C] if it has one.
                                   // Without v where values are keys, and q alone where another layer's KV is read
  std::vector<float> qkv_bias;     // [(H + 2K) D] or empty
  std::vector<float> q_norm;       // [D], [H D] if one norm is of all heads, or empty
  std::vector<float> k_norm;       // [D], [K D] if one norm is of all heads, or empty
  std::vector<float> v_norm;       // [D] of ones, or empty
  std::vector<float> sinks;        // [H] or empty
  std::unique_ptr<Matrix> output;  // [C, H D]
  std::vector<float> output_bias;  // [C] or empty
  std::vector<float> attention_post_norm;  // [C] or empty
  std::vector<float> mlp_norm;             // [C] or empty
  std::unique_ptr<Matrix> gate_up;         // [2F, C]: gate, up stacked
  std::vector<float> gate_up_bias;         // [2F] or empty
  std::unique_ptr<Matrix> down;            // [C, F]
  std::vector<float> down_bias;            // [C] or empty
  std::vector<float> mlp_post_norm;        // [C] or empty
  std::unique_ptr<Matrix> router;          // [E, C] of a mixture of experts, which then has no gate_up and no down
  std::vector<float> router_bias;          // [E] or empty
  std::vector<float> choice_bias;          // [E] or empty; see ExpertChoice
  std::vector<ExpertWeights> experts;      // [E]
  ExpertWeights shared;                    // of the expert that every token runs through; null: there is none
  std::unique_ptr<Matrix> shared_gate;     // [1, C]: its weight is the sigmoid of this product; null: 1
  std::unique_ptr<Matrix> latent_in;       // [W, C]: experts run on this product; null: on the layer's input
  std::unique_ptr<Matrix> latent_out;      // [C, W]
  std::vector<float> router_norm;          // [C] of the residual stream, for the router, or empty
  std::vector<float> expert_scale;         // [E] of the experts' weights, or empty
  std::vector<float> experts_norm;         // [C] of an MLP and experts: of what experts read
  std::vector<float> experts_post_norm;    // [C] and of what they write
  std::vector<float> mlp_own_norm;         // [C] and of what the MLP writes
  std::unique_ptr<TokenInputWeights> token_input;
  std::unique_ptr<AltUpWeights> altup;
  float scale = 1.0f;                           // multiplies the residual stream behind the layer
  std::unique_ptr<RecurrentWeights> recurrent;  // in the place of attention

  /// Returns the matrix of the layer's first product.
  const Matrix& first() const { return qkv ? *qkv : recurrent ? *recurrent->in : router ? *router : *gate_up; }
};

struct Weights {
  std::shared_ptr<const Matrix> embedding;          // [V, C]
  std::vector<LayerWeights> layers;                 // [L]
  std::vector<float> final_norm;                    // [C]
  std::shared_ptr<const Matrix> lm_head;            // [V, C]; the embedding where tied
  std::unique_ptr<Matrix> token_table;              // [tokens, L P] inputs of the layers; null: they have none
  std::unique_ptr<Matrix> token_projection;         // [L P, C]
  std::vector<float> token_norm;                    // [P]
  std::vector<std::unique_ptr<Matrix>> stream_in;   // [N - 1] of [C, C]: further residual streams, of the first one
  std::vector<std::unique_ptr<Matrix>> stream_out;  // [N - 1] of [C, C]: what is added of them to the first one
  std::size_t bytes = 0;
  std::vector<Buffer> kept;  // Device::keep of all vectors

  /// Once they are complete.
  void keep_vectors(Device& device);
};

/// Called while weights are read, with the fraction that is done, 0 to 1.
using LoadProgress = std::function<void(double)>;

/// Reads and checks everything; throws ModelError naming the tensor: missing, wrong shape, NaN or infinite values.
/// `dtype`, bf16 or f32, is the type of matrices that are not quantised. Quantised ones stay so; their products take
/// 8-bit activations with bf16, and activations as they are with f32. `activations`, f32 or bf16, are those of products
/// with matrices that the file holds unquantised and that are kept in bf16.
Weights load_weights(Backend& backend, const ModelConfig& config, const WeightSource& files, DType dtype,
                     const LoadProgress& progress = {}, DType activations = DType::f32);

// What tells two models apart: every byte of their files. What is stored for a model is keyed by it.

/// XXH3-128 over the settings and every byte of the files, as 32 hexadecimal digits. The hash of a large file is kept
/// in the user's cache by the file's path, size and time of change, and is then not computed again. Empty if it was
/// stopped. Throws ModelError if a file cannot be read. Safe from any thread.
std::string fingerprint_of(std::string_view settings, std::span<const InputFile* const> files,
                           const std::stop_token& stop = {});

}  // namespace baton
