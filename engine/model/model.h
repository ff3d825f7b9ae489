// SPDX-License-Identifier: Apache-2.0
// The files of a model, a Hugging Face folder or a GGUF file, behind one face: a model is the same whichever it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/kv/kv_cache.h"
#include "engine/model/config.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"
#include "engine/text/templates.h"

namespace baton {

/// Sampling defaults of generation_config.json, where it has any; temperature 0 means greedy.
struct GenerationDefaults {
  bool do_sample = false;
  float temperature = 1.0f;
  std::int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

/// Every member throws ModelError with the file and what was expected. One thread at a time, but text() may run while
/// another thread reads weights, and so may fingerprint() behind weights().
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  virtual ModelConfig config() const = 0;
  virtual GenerationDefaults generation() const = 0;
  virtual ModelText text() const = 0;              // without path and fingerprint
  virtual std::string tokenizer_file() const = 0;  // where the tokenizer is, for errors
  /// Opened when first asked for; valid while this object is.
  virtual const WeightSource& weights() = 0;
  /// The same for the same model: see fingerprint_of.
  virtual std::string fingerprint(const std::stop_token& stop = {}) = 0;
  virtual std::size_t bytes() = 0;  // of the weights' files
};

/// A folder, or a file whose name ends in .gguf (of a split one, any part). A GGUF file may have two files beside it,
/// named after it: NAME.config.json, a JSON merge patch over what its metadata says in the terms of config.json, and
/// NAME.tokenizer.json, which takes the place of its tokenizer. Throws ModelError: neither a folder nor such a file.
std::unique_ptr<ModelFiles> open_model_files(const std::filesystem::path& path);

/// Whether a model may be there: a folder that holds config.json, or a GGUF file (of a split one, the first part).
bool is_model(const std::filesystem::path& path);

/// Where a file that belongs to a model goes: into its folder, or beside a GGUF file under a name that begins as its
/// own does, "model.gguf" -> "model.baton.profile.json"; of a split one without the part's number.
std::filesystem::path file_beside(const std::filesystem::path& model, const std::string& name);

// A model, opened once and never changed: configuration, weights on a backend, tokenizer, chat template.

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
  /// Returns what a layer stores for each position; no heads: nothing.
  KvShape kv_shape(std::int32_t layer) const {
    return {config.stores_kv(layer) ? config.kv_heads_of(layer) : 0, config.head_dim_of(layer), options.kv_dtype};
  }
  /// Nothing is kept beside keys, values, and the states of recurrent layers.
  KvLayout kv_layout() const;
};

/// A model without its weights and its fingerprint. Throws ModelError with the file and what was expected.
Model describe_model(const ModelFiles& files, const std::filesystem::path& path, const ModelOptions& options);

/// Opens a Hugging Face folder or a GGUF file. Throws ModelError with the file and what was expected.
/// The backend must outlive the model.
std::shared_ptr<const Model> open_model(Backend& backend, const std::filesystem::path& path,
                                        const ModelOptions& options);

// Named shapes: the configurations of well-known models, and models of such a shape with random weights. The cost of a
// step does not depend on the values of the weights, so speed can be measured without a download.

struct Shape {
  std::string name;
  ModelConfig config;
  // RelayCaching's published layers (l_s, l_d, l_e; docs/methods.md); all 0: none were published.
  std::int32_t rectify_start = 0, rectify_detect = 0, rectify_end = 0;
};

/// "llama-3.1-8b", "qwen3-0.6b", "qwen2.5-7b", "mistral-7b", "smollm2-135m", "nano".
const std::vector<std::string>& shape_names();

/// Returns the configuration of a shape, with `layers` layers unless 0. Throws ModelError for an unknown name.
Shape find_shape(std::string_view name, std::int32_t layers = 0);

/// Returns the config.json of the shape's model. Throws ModelError for an unknown name.
std::string shape_config(std::string_view name);

/// Returns the number of weights and biases; an embedding that is also the head counts once.
std::int64_t parameter_count(const ModelConfig& config);

/// Returns a model of the shape whose weights depend only on the seed: normal with deviation 1 / sqrt(inputs), norms 1,
/// biases 0. Its tokenizer has one token per byte. Throws BackendError when there is no memory.
std::shared_ptr<const Model> make_random_model(Backend& backend, const Shape& shape, std::uint64_t seed,
                                               const ModelOptions& options);

/// Returns a tokenizer.json with a token for every byte and the special tokens <|start|> (256) and <|end|> (257).
std::string byte_tokenizer_json();

}  // namespace baton
