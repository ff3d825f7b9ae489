// SPDX-License-Identifier: Apache-2.0
// Named shapes: the configurations of well-known models, and models of such a shape with random weights. The cost of a
// step does not depend on the values of the weights, so speed can be measured without a download.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"

namespace baton {

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
