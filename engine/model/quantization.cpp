// SPDX-License-Identifier: Apache-2.0
#include "engine/model/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "engine/base/json_fields.h"

namespace baton {
namespace {

constexpr std::int32_t kMaxExtent = 1 << 20;  // of a group or a block

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The first of two spellings that is there.
std::string key_of(const JsonFields& fields, const char* key, const char* older) {
  return fields.find(key) == nullptr && fields.find(older) != nullptr ? older : key;
}

void require_four_bits(const JsonFields& fields, const char* older) {
  const std::string key = key_of(fields, "bits", older);
  if (fields.integer(key, 1, 64) != 4) fields.fail(key, "but of this method only 4 bits are supported");
}

/// -1 stands for all inputs.
std::int32_t read_group_size(const JsonFields& fields, const char* older) {
  const std::string key = key_of(fields, "group_size", older);
  const std::int32_t size = fields.integer(key, -1, kMaxExtent);
  if (size == 0) fields.fail(key, "expected -1 or a number of inputs");
  return std::max(size, 0);
}

/// Two numbers, outputs and inputs of a block.
void read_block(QuantizationConfig& config, const JsonFields& fields, const std::string& key) {
  const Json* block = fields.find(key);
  if (block == nullptr) return;
  const bool sound = block->is_array() && block->size() == 2 && std::ranges::all_of(*block, [](const Json& extent) {
                       return extent.is_number_integer() && extent >= 1 && extent <= kMaxExtent;
                     });
  if (!sound) fields.fail(key, "expected two numbers, the outputs and the inputs of a block, such as [128, 128]");
  config.block_rows = block->front().get<std::int32_t>();
  config.block_cols = block->back().get<std::int32_t>();
}

QuantizationConfig read_fp8(const JsonFields& fields) {
  if (fields.text_or("fmt", "e4m3") != "e4m3") fields.fail("fmt", "but only e4m3 is supported");
  QuantizationConfig config{.format = WeightFormat::fp8};
  read_block(config, fields, "weight_block_size");
  return config;
}

/// A scheme of compressed-tensors: how the weights of some modules are quantised.
QuantizationConfig read_scheme(const Json& scheme, const std::string& origin, const std::string& prefix) {
  const JsonFields fields(scheme, origin, prefix);
  const Json* entry = fields.find("weights");
  if (entry == nullptr) fields.fail("weights", "expected how weights are quantised");
  const JsonFields weights(*entry, origin, prefix + "weights.");
  if (weights.text_or("type", "") != "float") weights.fail("type", "but only float is supported");
  if (weights.integer("num_bits", 1, 64) != 8) weights.fail("num_bits", "but only 8 are supported");
  if (!weights.flag_or("symmetric", true)) weights.fail("symmetric", "but only symmetric weights are supported");
  QuantizationConfig config{.format = WeightFormat::fp8};
  const std::string strategy = weights.text_or("strategy", "");
  if (strategy == "block") {
    read_block(config, weights, "block_structure");
    if (config.block_rows == 0) weights.fail("block_structure", "expected two numbers, as the strategy is block");
  } else if (strategy != "tensor" && strategy != "channel") {
    weights.fail("strategy", "but only tensor, channel and block are supported");
  }
  return config;
}

QuantizationConfig read_compressed_tensors(const JsonFields& fields, const std::string& origin,
                                           const std::string& prefix) {
  const std::string format = fields.text_or("format", "");
  if (format != "float-quantized" && format != "naive-quantized")
    fields.fail("format", "but of compressed-tensors only float-quantized (FP8) is supported");
  if (const Json* sparsity = fields.find("sparsity_config"); sparsity != nullptr && !sparsity->empty()) {
    if (JsonFields(*sparsity, origin, prefix + "sparsity_config.").text_or("format", "dense") != "dense")
      fields.fail("sparsity_config", "but sparse weights are not supported");
  }
  if (const Json* transforms = fields.find("transform_config"); transforms != nullptr && !transforms->empty()) {
    if (!transforms->is_object() || !transforms->contains("config_groups") || !(*transforms)["config_groups"].empty())
      fields.fail("transform_config", "but transforms of weights are not supported");
  }
  const Json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty())
    fields.fail("config_groups", "expected an object of schemes");
  QuantizationConfig config;
  for (const auto& [name, scheme] : groups->items()) {
    const QuantizationConfig other = read_scheme(scheme, origin, fmt::format("{}config_groups.{}.", prefix, name));
    const bool first = config.format == WeightFormat::plain;
    if (!first && (other.block_rows != config.block_rows || other.block_cols != config.block_cols))
      fields.fail("config_groups", "expected schemes with blocks of one size");
    config = other;
  }
  return config;
}

QuantizationConfig read_gptq(const JsonFields& fields) {
  require_four_bits(fields, "bits");
  const std::string format = lower(fields.text_or(key_of(fields, "checkpoint_format", "format"), "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    fields.fail(key_of(fields, "checkpoint_format", "format"), "but only gptq and gptq_v2 are supported");
  if (fields.flag_or("is_marlin_format", false)) fields.fail("is_marlin_format", "but only gptq is supported");
  if (lower(fields.text_or("pack_dtype", "int32")) != "int32") fields.fail("pack_dtype", "but only int32 is supported");
  return {.format = WeightFormat::gptq,
          .group_size = read_group_size(fields, "group_size"),
          .ordered_by_activation = fields.flag_or("desc_act", false),
          .zeros_less_one = format == "gptq"};
}

QuantizationConfig read_awq(const JsonFields& fields) {
  require_four_bits(fields, "w_bit");
  if (lower(fields.text_or("version", "gemm")) != "gemm") fields.fail("version", "but only gemm is supported");
  if (!fields.flag_or("zero_point", true)) fields.fail("zero_point", "but only weights with zeros are supported");
  return {.format = WeightFormat::awq, .group_size = read_group_size(fields, "q_group_size")};
}

}  // namespace

QuantizationConfig read_quantization(const JsonFields& config, const std::string& origin) {
  const Json* value = config.find("quantization_config");
  if (value == nullptr) return {};
  const std::string prefix = "quantization_config.";
  const JsonFields fields(*value, origin, prefix);
  const std::string method = fields.text_or("quant_method", "");
  if (method == "fp8") return read_fp8(fields);
  if (method == "compressed-tensors") return read_compressed_tensors(fields, origin, prefix);
  if (method == "gptq") return read_gptq(fields);
  if (method == "awq") return read_awq(fields);
  fields.fail("quant_method", "but supported are fp8, compressed-tensors, gptq and awq; or use a checkpoint in bf16");
}

}  // namespace baton
