// SPDX-License-Identifier: Apache-2.0
#include "engine/model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <limits>
#include <stdexcept>

#include "engine/model/checkpoint_weights.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/engine/model/host_backend.h"
#include "tests/support/golden.h"
#include "tests/support/thread_time.h"

namespace weights_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

/// C 4, H 2, K 1, D 2, F 3, V 5, one layer. Every element of tensor number n is n, so that stacks show their order.
struct Tiny {
  ModelConfig config;
  std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>> tensors;

  Tiny() {
    config.architecture = "LlamaForCausalLM";
    config.layers = 1;
    config.width = 4;
    config.heads = 2;
    config.kv_heads = 1;
    config.head_dim = 2;
    config.ffn_width = 3;
    config.vocabulary = 5;
    const std::string layer = "model.layers.0.";
    add("model.embed_tokens.weight", {5, 4});
    add(layer + "input_layernorm.weight", {4});
    add(layer + "self_attn.q_proj.weight", {4, 4});
    add(layer + "self_attn.k_proj.weight", {2, 4});
    add(layer + "self_attn.v_proj.weight", {2, 4});
    add(layer + "self_attn.o_proj.weight", {4, 4});
    add(layer + "post_attention_layernorm.weight", {4});
    add(layer + "mlp.gate_proj.weight", {3, 4});
    add(layer + "mlp.up_proj.weight", {3, 4});
    add(layer + "mlp.down_proj.weight", {4, 3});
    add("model.norm.weight", {4});
    add("lm_head.weight", {5, 4});
  }

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    tensors[name] = {shape, std::vector<float>(count, static_cast<float>(tensors.size() + 1))};
  }

  Weights load(const LoadProgress& progress = {}) const {
    const TempFolder folder;
    TensorFile file;
    for (const auto& [name, tensor] : tensors) file.add(name, tensor.first, tensor.second);
    folder.write("model.safetensors", file.bytes());
    const SafetensorsFolder files(folder.path());
    HostBackend backend;
    return load_weights(backend, config, files, DType::f32, progress);
  }
  std::string problem() const {
    return error_of<ModelError>([&] { load(); });
  }
};

std::vector<float> repeated(std::initializer_list<std::pair<int, int>> runs) {
  std::vector<float> values;
  for (const auto& [value, count] : runs)
    values.insert(values.end(), static_cast<std::size_t>(count), static_cast<float>(value));
  return values;
}

}  // namespace

TEST_CASE("matrices are stacked in the order q, k, v and gate, up") {
  std::vector<double> shares;
  const Weights weights = Tiny().load([&](double share) { shares.push_back(share); });
  REQUIRE(weights.layers.size() == 1);
  const LayerWeights& layer = weights.layers[0];
  CHECK((layer.qkv->rows == 8 && layer.qkv->cols == 4));
  CHECK(host(*layer.qkv).values == repeated({{3, 16}, {4, 8}, {5, 8}}));
  CHECK((layer.gate_up->rows == 6 && layer.gate_up->cols == 4));
  CHECK(host(*layer.gate_up).values == repeated({{8, 12}, {9, 12}}));
  CHECK((layer.output->rows == 4 && layer.output->cols == 4));
  CHECK((layer.down->rows == 4 && layer.down->cols == 3));
  CHECK(layer.input_norm == repeated({{2, 4}}));
  CHECK(layer.mlp_norm == repeated({{7, 4}}));
  CHECK(weights.final_norm == repeated({{11, 4}}));
  CHECK(layer.qkv_bias.empty());
  CHECK(layer.q_norm.empty());
  CHECK((weights.embedding->rows == 5 && weights.embedding->cols == 4));
  CHECK(weights.lm_head != weights.embedding);
  CHECK(weights.bytes == 4 * (20 + 4 + 32 + 16 + 4 + 24 + 12 + 4 + 20));
  REQUIRE(shares.size() > 2);
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  CHECK(shares.front() == 0.0);
  CHECK(shares[shares.size() - 2] < 1.0);
  CHECK(shares.back() == 1.0);
}

TEST_CASE("biases and head norms are read where the configuration has them") {
  Tiny tiny;
  tiny.config.attention_bias = tiny.config.output_bias = tiny.config.mlp_bias = tiny.config.qk_norm = true;
  const std::string layer = "model.layers.0.";
  tiny.add(layer + "self_attn.q_proj.bias", {4});
  tiny.add(layer + "self_attn.k_proj.bias", {2});
  tiny.add(layer + "self_attn.v_proj.bias", {2});
  CHECK_THAT(tiny.problem(), Contains("tensor \"model.layers.0.self_attn.q_norm.weight\" is missing; searched "));
  tiny.add(layer + "self_attn.q_norm.weight", {2});
  tiny.add(layer + "self_attn.k_norm.weight", {2});
  tiny.add(layer + "self_attn.o_proj.bias", {4});
  tiny.add(layer + "mlp.gate_proj.bias", {3});
  tiny.add(layer + "mlp.up_proj.bias", {3});
  tiny.add(layer + "mlp.down_proj.bias", {4});
  const Weights weights = tiny.load();
  CHECK(weights.layers[0].qkv_bias == repeated({{13, 4}, {14, 2}, {15, 2}}));
  CHECK(weights.layers[0].q_norm == repeated({{16, 2}}));
  CHECK(weights.layers[0].k_norm == repeated({{17, 2}}));
  CHECK(weights.layers[0].output_bias == repeated({{18, 4}}));
  CHECK(weights.layers[0].gate_up_bias == repeated({{19, 3}, {20, 3}}));
  CHECK(weights.layers[0].down_bias == repeated({{21, 4}}));
}

TEST_CASE("Phi-3 keeps its stacks as they are") {
  Tiny tiny;
  tiny.config.architecture = "Phi3ForCausalLM";
  const std::string layer = "model.layers.0.";
  CHECK_THAT(tiny.problem(), Contains("\"model.layers.0.self_attn.qkv_proj.weight\" is missing"));
  tiny.add(layer + "self_attn.qkv_proj.weight", {8, 4});
  tiny.add(layer + "mlp.gate_up_proj.weight", {6, 4});
  const Weights weights = tiny.load();
  CHECK(host(*weights.layers[0].qkv).values == repeated({{13, 32}}));
  CHECK(host(*weights.layers[0].gate_up).values == repeated({{14, 24}}));
}

TEST_CASE("the head is tied when the configuration says so or the file has none") {
  Tiny tiny;
  tiny.config.tied_embeddings = true;
  const Weights declared = tiny.load();
  CHECK(declared.lm_head == declared.embedding);
  tiny.config.tied_embeddings = false;
  tiny.tensors.erase("lm_head.weight");
  const Weights absent = tiny.load();
  CHECK(absent.lm_head == absent.embedding);
}

TEST_CASE("missing tensors and wrong shapes are named") {
  for (const auto& [name, tensor] : Tiny().tensors) {
    if (name == "lm_head.weight") continue;
    INFO(name);
    Tiny missing;
    missing.tensors.erase(name);
    CHECK_THAT(missing.problem(), Contains("tensor \"" + name + "\" is missing"));
    Tiny wrong;
    wrong.tensors[name].first.push_back(2);
    wrong.tensors[name].second.resize(2 * tensor.second.size());
    CHECK_THAT(wrong.problem(), Contains("tensor \"" + name + "\" has shape [") && Contains(", 2], expected ["));
  }
}

TEST_CASE("values that are not finite are named with their place") {
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 3.4e38f}) {
    Tiny tiny;
    tiny.tensors[name].second[7] = bad;
    CHECK_THAT(tiny.problem(), Contains("tensor \"" + name + "\" holds ") && Contains(" at [2, 1], expected finite"));
  }
  Tiny norm;
  norm.tensors["model.norm.weight"].second[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(norm.problem(), Equals("tensor \"model.norm.weight\" holds nan at [3], expected finite values"));
  Tiny large;
  large.tensors[name].second[7] = -3.38e38f;  // the largest bf16 is 3.39e38
  CHECK(large.problem() == "");
}

TEST_CASE("NaN is found in bf16 and f16, at any place of a long tensor") {
  struct Case {
    const char* type;
    std::uint16_t bits;
    bool finite;
  };
  const Case cases[] = {{"BF16", 0x7f7f, true}, {"BF16", 0x7f80, false}, {"BF16", 0xffc0, false},
                        {"BF16", 0xff7f, true}, {"F16", 0x7bff, true},   {"F16", 0x7c00, false},
                        {"F16", 0xfe00, false}, {"F16", 0xfbff, true}};
  constexpr std::size_t kCount = 10000;
  for (const Case& c : cases) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{4095}, std::size_t{4096}, std::size_t{9999}}) {
      INFO(c.type << " " << c.bits << " at " << place);
      std::string data(2 * kCount, '\0');
      data[2 * place] = static_cast<char>(c.bits & 0xff);
      data[2 * place + 1] = static_cast<char>(c.bits >> 8);
      std::string header = R"({"model.embed_tokens.weight":{"dtype":")" + std::string(c.type) +
                           R"(","shape":[100,100],"data_offsets":[0,20000]}})";
      header.resize((header.size() + 7) / 8 * 8, ' ');
      const TempFolder folder;
      folder.write("model.safetensors", safetensors(header, data));
      ModelConfig config;
      config.vocabulary = config.width = 100;
      HostBackend backend;
      const std::string problem =
          error_of<ModelError>([&] { load_weights(backend, config, SafetensorsFolder(folder.path()), DType::bf16); });
      const std::string where = "[" + std::to_string(place / 100) + ", " + std::to_string(place % 100) + "]";
      CHECK_THAT(problem,
                 Contains(c.finite ? "\"model.norm.weight\" is missing" : " at " + where + ", expected finite"));
    }
  }
}

TEST_CASE("a tensor is read in time that does not depend on the number of others") {
  Tiny tiny;
  tiny.config.layers = 40;
  const auto first = tiny.tensors;
  for (std::int32_t layer = 1; layer < tiny.config.layers; ++layer)
    for (const auto& [name, tensor] : first)
      if (const std::string prefix = "model.layers.0."; name.starts_with(prefix))
        tiny.add("model.layers." + std::to_string(layer) + "." + name.substr(prefix.size()), tensor.first);
  std::string header = "{", data;
  for (const auto& [name, tensor] : tiny.tensors) {
    const std::size_t begin = data.size();
    data.resize(begin + tensor.second.size() * sizeof(float));  // zeros
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}},)", name,
                          fmt::join(tensor.first, ","), begin, data.size());
  }
  for (int i = 0; i < 20'000; ++i)
    header += fmt::format(R"({}"x{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i > 0 ? "," : "", i);
  const TempFolder folder;
  folder.write("model.safetensors", safetensors(header + "}", data));
  const SafetensorsFolder files(folder.path());
  const CheckpointWeights source(files, {});
  HostBackend backend;
  const double begin = thread_seconds();
  CHECK(load_weights(backend, tiny.config, source, DType::f32).layers.size() == 40);
  CHECK(thread_seconds() - begin < 0.4 * slowdown());
}

TEST_CASE("matrices are not kept in f16") {
  const Tiny tiny;
  HostBackend backend;
  CHECK_THROWS_AS(load_weights(backend, tiny.config, SafetensorsFolder(golden_folder() / "llama2"), DType::f16),
                  std::invalid_argument);
}

TEST_CASE("every golden checkpoint loads") {
  for (const std::string& name : golden_names()) {
    INFO(name);
    const std::filesystem::path folder = golden_folder() / name;
    std::ifstream file(folder / "config.json");
    const ModelConfig config = parse_config(std::string(std::istreambuf_iterator<char>(file), {}), name);
    HostBackend backend;
    const auto files = open_model_files(folder);
    const Weights weights = load_weights(backend, config, files->weights(), DType::f32);
    REQUIRE(weights.layers.size() == static_cast<std::size_t>(config.layers));
    const std::int64_t queries = (config.attention_gate ? 2 : 1) * config.heads;
    for (std::int32_t i = 0; i < config.layers; ++i) {
      const LayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
      const std::int64_t kv = config.stores_kv(i) ? config.kv_heads_of(i) * (config.keys_as_values(i) ? 1 : 2) : 0;
      const std::int64_t stacked = (queries + kv) * config.head_dim_of(i);
      CHECK((layer.qkv != nullptr) == config.attends(i));
      const LayerKind mixer = config.mixer(i);
      CHECK((layer.recurrent != nullptr) == (mixer != LayerKind::attention && mixer != LayerKind::none));
      if (layer.qkv == nullptr) continue;
      CHECK((layer.qkv->rows == stacked && layer.qkv->cols == config.width));
      CHECK(layer.qkv_bias.size() == (config.attention_bias ? static_cast<std::size_t>(stacked) : 0));
    }
    CHECK((weights.lm_head == weights.embedding) == config.tied_embeddings);
  }
}

}  // namespace weights_test
