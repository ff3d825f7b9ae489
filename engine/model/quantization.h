// SPDX-License-Identifier: Apache-2.0
// What "quantization_config" of a config.json says about the weights of a safetensors checkpoint.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

class JsonFields;

/// plain: no tensor is quantised. fp8: bytes of E4M3 with scales. gptq, awq: integers of 4 bits with scales and zeros,
/// in words of eight; gptq packs along the inputs of a matrix, awq along its outputs.
enum class WeightFormat : std::uint8_t { plain, fp8, gptq, awq };

struct QuantizationConfig {
  WeightFormat format = WeightFormat::plain;
  std::int32_t group_size = 0;         // gptq, awq: inputs that share a scale; 0: all inputs of an output
  bool ordered_by_activation = false;  // gptq: "g_idx" says which group an input belongs to
  bool zeros_less_one = false;         // gptq: a zero of 8 is stored as 7
  std::int32_t block_rows = 0;         // fp8: outputs that share a scale; 0: one scale for a tensor or for each output
  std::int32_t block_cols = 0;         // fp8: inputs that share a scale
};

/// Reads "quantization_config" of a config.json; without it all weights are plain. `origin` names the file in errors.
/// Throws ModelError: a method or a variant that is not supported, by name, or an impossible value.
QuantizationConfig read_quantization(const JsonFields& config, const std::string& origin);

}  // namespace baton
