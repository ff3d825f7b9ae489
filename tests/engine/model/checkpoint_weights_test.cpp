// SPDX-License-Identifier: Apache-2.0
// Quantised checkpoints: the values that other packages read (tests/golden/make_quantized.py), and files that lie.
#include "engine/model/checkpoint_weights.h"

#include <bit>
#include <catch2/catch.hpp>
#include <limits>

#include "engine/base/hash.h"
#include "engine/model/config.h"
#include "engine/model/model.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/support/golden.h"

namespace checkpoint_weights_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;

namespace {

using Ints = std::vector<std::int32_t>;

std::uint64_t hash_of(const StoredWeight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.cols));
  dequantize(values, {weight.data.get(), static_cast<std::size_t>(weight.rows * row_bytes(weight.type, weight.cols))},
             weight.type);
  std::uint64_t hash = kFnvStart;
  for (const float value : values) hash = fnv1a(hash, std::bit_cast<std::uint32_t>(value));
  return hash;
}

nlohmann::json json_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// A checkpoint of one matrix "m.weight" [8, 64].
struct OneMatrix {
  QuantizationConfig config;
  TensorFile file;

  StoredWeight read() const {
    const TempFolder folder;
    folder.write("model.safetensors", file.bytes());
    const SafetensorsFolder files(folder.path());
    return CheckpointWeights(files, config).weight("m.weight", 8, 64);
  }
  std::string problem() const {
    return error_of<ModelError>([&] { read(); });
  }
};

struct Int4Parts {
  std::vector<std::int64_t> words = {8, 8}, zeros = {2, 1}, scales = {2, 8};
  std::string scale_type = "F32";
  std::vector<float> scale_values = std::vector<float>(16, 0.5f);
  Ints group;  // of inputs; empty: there is no such tensor
  std::string without;
};

OneMatrix gptq_of(const Int4Parts& parts, bool ordered = false) {
  OneMatrix one{{.format = WeightFormat::gptq, .group_size = 32, .ordered_by_activation = ordered}, {}};
  const auto add = [&](const std::string& name, const std::string& type, const auto& shape, const auto& values) {
    if (name != parts.without) one.file.add("m." + name, type, shape, values);
  };
  add("qweight", "I32", parts.words, Ints(static_cast<std::size_t>(parts.words[0] * parts.words[1])));
  add("qzeros", "I32", parts.zeros, Ints(static_cast<std::size_t>(parts.zeros[0] * parts.zeros[1])));
  add("scales", parts.scale_type, parts.scales, parts.scale_values);
  if (!parts.group.empty())
    add("g_idx", "I32", std::vector<std::int64_t>{static_cast<std::int64_t>(parts.group.size())}, parts.group);
  return one;
}

OneMatrix fp8_of(const std::vector<std::int64_t>& scale_shape, const std::string& scale_name = "weight_scale",
                 QuantizationConfig config = {.format = WeightFormat::fp8}) {
  OneMatrix one{config, {}};
  one.file.add("m.weight", "F8_E4M3", {8, 64}, std::vector<std::uint8_t>(512, 0x38));
  std::int64_t count = 1;
  for (const std::int64_t extent : scale_shape) count *= extent;
  one.file.add("m." + scale_name, scale_shape, std::vector<float>(static_cast<std::size_t>(count), 2.0f));
  return one;
}

}  // namespace

TEST_CASE("quantised checkpoints have the values that other packages read", "[golden]") {
  for (const std::string& name : quantized_names()) {
    const std::filesystem::path folder = golden_folder() / name;
    const auto files = open_model_files(folder);
    const auto goldens = json_of(folder / "goldens.json"), tensors = goldens.at("weights");
    const ModelConfig config = files->config();
    const std::size_t experts = static_cast<std::size_t>(config.mixture.experts);
    REQUIRE(tensors.size() == (experts > 0 ? 2 * 2 * experts : 14));
    for (const auto& [tensor, hash] : tensors.items()) {
      INFO(name << " " << tensor);
      const bool down = tensor.find("down_proj") != std::string::npos, up = tensor.find("mlp.") != std::string::npos;
      const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
      const bool keys = tensor.find("k_proj") != std::string::npos || tensor.find("v_proj") != std::string::npos;
      const bool output = tensor.find("o_proj") != std::string::npos;
      const std::int64_t gates = (experts > 0 ? 2 : 1) * config.ffn_width;
      const std::int64_t rows = down || output ? config.width : up ? gates : keys ? kv : q;
      const std::int64_t cols = down ? config.ffn_width : output ? q : config.width;
      REQUIRE(files->weights().contains(tensor));
      const StoredWeight weight = files->weights().weight(tensor, rows, cols);
      CHECK(format_of(weight.type).name == goldens.at("stored").get<std::string>());
      CHECK(hash_of(weight) == std::stoull(hash.get<std::string>(), nullptr, 16));
    }
    CHECK(files->weights().weight("model.norm.weight", 1, config.width).type == BlockType::bf16);
    CHECK_FALSE(files->weights().contains("model.layers.2.mlp.down_proj.weight"));
  }
}

TEST_CASE("FP8 takes the bytes of f32 in the sum of all weights") {
  const TempFolder folder;
  folder.write("model.safetensors", fp8_of({1}).file.bytes());
  const SafetensorsFolder files(folder.path());
  CHECK(CheckpointWeights(files, {.format = WeightFormat::fp8}).total_bytes() == 512 * 4 + 4);
}

TEST_CASE("4-bit checkpoints that lie are refused") {
  CHECK(gptq_of({}).read().type == BlockType::q5_0);
  CHECK(gptq_of({.group = Ints(64, 1)}).read().type == BlockType::q5_0);
  CHECK_THAT(gptq_of({.words = {16, 8}}).problem(),
             Contains("tensor \"m.qweight\" has shape [16, 8], expected [8, 8]"));
  CHECK_THAT(gptq_of({.zeros = {1, 1}}).problem(), Contains("\"m.qzeros\" has shape [1, 1], expected [2, 1]"));
  CHECK_THAT(gptq_of({.scales = {1, 8}, .scale_values = std::vector<float>(8)}).problem(),
             Contains("\"m.scales\" has shape [1, 8], expected [2, 8], as groups are of 32"));
  for (const std::string name : {"qzeros", "scales"})
    CHECK_THAT(gptq_of({.without = name}).problem(), Contains("tensor \"m." + name + "\" is missing"));
  CHECK_THAT(gptq_of({.without = "qweight"}).problem(), Contains("tensor \"m.weight\" is missing"));
  CHECK_THAT(gptq_of({}, true).problem(), Contains("tensor \"m.g_idx\" is missing"));
  CHECK_THAT(gptq_of({.group = Ints(63)}).problem(), Contains("\"m.g_idx\" has shape [63], expected [64]"));
  for (const std::int32_t bad : {-1, 2, INT32_MAX, INT32_MIN}) {
    Ints group(64);
    group[7] = bad;
    CHECK_THAT(gptq_of({.group = group}).problem(),
               Contains("\"m.g_idx\" holds " + std::to_string(bad) + " at place 7, expected a group from 0 to 1"));
  }
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Int4Parts parts;
    parts.scale_values[9] = bad;
    CHECK_THAT(gptq_of(parts).problem(), Contains("\"m.scales\" holds") && Contains("at place 9, expected finite"));
  }
  CHECK_THAT(gptq_of({.scale_type = "I32"}).problem(),
             Contains("\"m.scales\" is of type I32, expected BF16, F16 or F32"));

  OneMatrix awq = gptq_of({.words = {64, 1}});
  awq.config.format = WeightFormat::awq;
  CHECK(awq.read().type == BlockType::q5_0);
  awq = gptq_of({});
  awq.config.format = WeightFormat::awq;
  CHECK_THAT(awq.problem(), Contains("\"m.qweight\" has shape [8, 8], expected [64, 1]"));

  const TempFolder folder;
  folder.write("model.safetensors", gptq_of({}).file.bytes());
  const SafetensorsFolder files(folder.path());
  const CheckpointWeights weights(files, {.format = WeightFormat::gptq});
  CHECK_THAT(error_of<ModelError>([&] { weights.weight("m.weight", 12, 64); }),
             Contains("\"m.qweight\" stands for a matrix [12, 64], expected multiples of 8"));
}

TEST_CASE("a tensor of all experts is read expert by expert, in every form") {
  // Experts 0 and 1 with weights [3, 2]: 100 e + 10 c + n of input c and output n.
  std::vector<float> stack, biases;
  for (int e = 0; e < 2; ++e) {
    for (int c = 0; c < 2; ++c)
      for (int n = 0; n < 3; ++n) stack.push_back(static_cast<float>(100 * e + 10 * c + n));
    for (int n = 0; n < 3; ++n) biases.push_back(static_cast<float>(1000 * e + n));
  }
  TensorFile file;
  file.add("m.experts.up", {2, 2, 3}, stack);
  file.add("m.experts.up_bias", {2, 3}, biases);
  // One block for each of two outputs: codes 0, 1, ... in the order of inputs, and the power -1, of expert 1 alone.
  std::vector<std::uint8_t> blocks(2 * 2 * 16), scales = {127, 127, 126, 126};
  for (std::size_t i = 0; i < 16; ++i)
    blocks[2 * 16 + i] = blocks[3 * 16 + i] = static_cast<std::uint8_t>((2 * i) % 16 | (2 * i + 1) % 16 << 4);
  file.add("m.experts.down_blocks", "U8", {2, 2, 1, 16}, blocks);
  file.add("m.experts.down_scales", "U8", {2, 2, 1}, scales);
  const TempFolder folder;
  folder.write("model.safetensors", file.bytes());
  const SafetensorsFolder files(folder.path());
  const CheckpointWeights weights(files, {.format = WeightFormat::mxfp4}, true), plain(files, {}, true),
      none(files, {});
  const auto values = [](const StoredWeight& weight) {
    std::vector<float> out(static_cast<std::size_t>(weight.rows * weight.cols));
    dequantize(out, {weight.data.get(), static_cast<std::size_t>(weight.rows * row_bytes(weight.type, weight.cols))},
               weight.type);
    return out;
  };
  CHECK(values(weights.weight("m.experts.1.up.weight", 3, 2)) == std::vector<float>{100, 110, 101, 111, 102, 112});
  CHECK(values(weights.weight("m.experts.1.up.bias", 1, 3)) == std::vector<float>{1000, 1001, 1002});
  const StoredWeight down = weights.weight("m.experts.1.down.weight", 2, 32);
  CHECK(down.type == BlockType::mxfp4);
  const std::vector<float> all = values(down);
  const float halves[] = {0, 0.25f, 0.5f, 0.75f, 1, 1.5f, 2, 3};
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == (i % 16 < 8 ? 1.0f : -1.0f) * halves[i % 8]);
  CHECK(values(weights.weight("m.experts.0.down.weight", 2, 32)) == std::vector<float>(64, 0.0f));

  CHECK(weights.contains("m.experts.1.up.weight"));
  CHECK(weights.contains("m.experts.1.down.weight"));
  for (const std::string name : {"m.experts.2.up.weight", "m.experts.2.down.weight", "m.experts.x.up.weight",
                                 "m.experts.1.other.weight", "m.experts.1.up", "m.experts..up.weight"}) {
    INFO(name);
    CHECK_FALSE(weights.contains(name));
  }
  CHECK_FALSE(plain.contains("m.experts.1.down.weight"));
  CHECK(plain.contains("m.experts.1.up.weight"));
  CHECK_FALSE(none.contains("m.experts.1.up.weight"));
  const auto problem = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    return error_of<ModelError>([&] { weights.weight(name, rows, cols); });
  };
  CHECK_THAT(problem("m.experts.2.up.weight", 3, 2), Contains("\"m.experts.up\" is of 2 experts, expected expert 2"));
  CHECK_THAT(problem("m.experts.1.up.weight", 2, 3), Contains("has shape [2, 2, 3], expected [3, 2] of each expert"));
  CHECK_THAT(problem("m.experts.1.up.bias", 1, 4), Contains("has shape [2, 3], expected [4] of each expert"));
  CHECK_THAT(problem("m.experts.1.down.weight", 2, 64),
             Contains("has shape [2, 2, 1, 16], expected [2, 2, 16] of each"));
  CHECK_THAT(problem("m.experts.1.other.weight", 2, 64), Contains("\"m.experts.1.other.weight\" is missing"));

  TensorFile lies;
  lies.add("m.experts.down_blocks", {1, 2, 1, 16}, std::vector<float>(32));
  lies.add("m.experts.down_scales", "U8", {1, 2, 1}, std::vector<std::uint8_t>(2));
  lies.add("m.experts.up_blocks", "U8", {1, 2, 1, 16}, std::vector<std::uint8_t>(32));
  folder.write("model.safetensors", lies.bytes());
  const SafetensorsFolder other(folder.path());
  const CheckpointWeights lying(other, {.format = WeightFormat::mxfp4}, true);
  CHECK_THAT(error_of<ModelError>([&] { lying.weight("m.experts.0.down.weight", 2, 32); }),
             Contains("\"m.experts.down_blocks\" is of type F32, expected U8"));
  CHECK_THAT(error_of<ModelError>([&] { lying.weight("m.experts.0.up.weight", 2, 32); }),
             Contains("\"m.experts.up_scales\" is missing"));
}

TEST_CASE("FP8 checkpoints that lie are refused") {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{}, {1}, {1, 1}, {8}, {8, 1}})
    CHECK(fp8_of(shape).problem().empty());
  CHECK_THAT(fp8_of({64}).problem(),
             Contains("tensor \"m.weight_scale\" has shape [64], expected one scale, [8] or [8, 1]"));
  CHECK_THAT(fp8_of({8}, "scale").problem(),
             Contains("expected a tensor \"m.weight_scale\" or \"m.weight_scale_inv\""));
  const QuantizationConfig blocks{.format = WeightFormat::fp8, .block_rows = 5, .block_cols = 48};
  CHECK(fp8_of({2, 2}, "weight_scale_inv", blocks).problem().empty());
  CHECK_THAT(fp8_of({1, 2}, "weight_scale_inv", blocks).problem(),
             Contains("has shape [1, 2], expected [2, 2], as blocks are of 5 by 48"));
  CHECK_THAT(fp8_of({1}, "weight_scale", {.format = WeightFormat::gptq}).problem(),
             Contains("\"m.weight\" is of type F8_E4M3, expected BF16, F16 or F32"));
  OneMatrix bad{{.format = WeightFormat::fp8}, {}};
  bad.file.add("m.weight", "F8_E4M3", {8, 64}, std::vector<std::uint8_t>(512, 0x38));
  bad.file.add("m.weight_scale", {1}, {std::numeric_limits<float>::quiet_NaN()});
  CHECK_THAT(bad.problem(), Contains("\"m.weight_scale\" holds nan at place 0, expected finite scales"));
}

}  // namespace checkpoint_weights_test
