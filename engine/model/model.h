// SPDX-License-Identifier: Apache-2.0
// A model, opened once and never changed: configuration, weights on a backend, tokenizer, chat template.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/backend/backend.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/config.h"
#include "engine/model/model_files.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"
#include "engine/text/model_text.h"

namespace baton {

struct ModelOptions {
  DType dtype = DType::bf16;  // of weights; see load_weights
  /// Of products with bf16 weights: f32, or bf16, which rounds their inputs (Operations::load_matrix).
  DType activations = DType::f32;
  DType kv_dtype = DType::bf16;  // of the KV cache
  std::int32_t context = 0;      // 0: the model's own; larger than the model's own is an error
  LoadProgress progress;
};

struct Model : ModelText {
  ModelConfig config;
  ModelOptions options;
  LayerRopes ropes;
  Weights weights;
  GenerationDefaults generation;
  KvShape kv_shape() const { return {config.kv_heads, config.head_dim, options.kv_dtype}; }
  KvLayout kv_layout() const { return {kv_shape(), config.layers}; }  // nothing kept beside keys and values
};

/// A model without its weights and its fingerprint. Throws ModelError with the file and what was expected.
Model describe_model(const ModelFiles& files, const std::filesystem::path& path, const ModelOptions& options);

/// Opens a Hugging Face folder or a GGUF file. Throws ModelError with the file and what was expected.
/// The backend must outlive the model.
std::shared_ptr<const Model> open_model(Backend& backend, const std::filesystem::path& path,
                                        const ModelOptions& options);

}  // namespace baton
