// SPDX-License-Identifier: Apache-2.0
// The weights of a model on a backend.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/config.h"
#include "engine/model/weight_source.h"

namespace baton {

/// One expert of a mixture.
struct ExpertWeights {
  std::unique_ptr<Matrix> gate_up;  // [2 F, C] with the experts' F
  std::unique_ptr<Matrix> down;     // [C, F]
};

struct LayerWeights {
  std::vector<float> input_norm;           // [C]
  std::unique_ptr<Matrix> qkv;             // [(H + 2K) D, C]: q, k, v stacked
  std::vector<float> qkv_bias;             // [(H + 2K) D] or empty
  std::vector<float> q_norm;               // [D] or empty
  std::vector<float> k_norm;               // [D] or empty
  std::unique_ptr<Matrix> output;          // [C, H D]
  std::vector<float> output_bias;          // [C] or empty
  std::vector<float> attention_post_norm;  // [C] or empty
  std::vector<float> mlp_norm;             // [C]
  std::unique_ptr<Matrix> gate_up;         // [2F, C]: gate, up stacked
  std::vector<float> gate_up_bias;         // [2F] or empty
  std::unique_ptr<Matrix> down;            // [C, F]
  std::vector<float> down_bias;            // [C] or empty
  std::vector<float> mlp_post_norm;        // [C] or empty
  std::unique_ptr<Matrix> router;          // [E, C] of a mixture of experts, which then has no gate_up and no down
  std::vector<ExpertWeights> experts;      // [E]
};

struct Weights {
  std::shared_ptr<const Matrix> embedding;  // [V, C]
  std::vector<LayerWeights> layers;         // [L]
  std::vector<float> final_norm;            // [C]
  std::shared_ptr<const Matrix> lm_head;    // [V, C]; the embedding where tied
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

}  // namespace baton
