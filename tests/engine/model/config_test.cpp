// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/model/rope.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/support/golden.h"
#include "tests/support/thread_time.h"

namespace config_test {

using namespace baton;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using nlohmann::json;

namespace {

json base(const std::string& architecture = "LlamaForCausalLM") {
  return {{"architectures", json::array({architecture})},
          {"hidden_size", 64},
          {"intermediate_size", 112},
          {"num_hidden_layers", 4},
          {"vocab_size", 320},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 512}};
}

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

json without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

ModelConfig parse(const json& config) { return parse_config(config.dump(), "config.json"); }

std::string problem(const json& config) {
  return test::error_of<ModelError>([&] { parse(config); });
}

}  // namespace

TEST_CASE("how weights are quantised") {
  const auto read = [](const json& quantization) {
    return parse(with(base(), {{"quantization_config", quantization}})).quantization;
  };
  const auto refused = [](const json& quantization) {
    return problem(with(base(), {{"quantization_config", quantization}}));
  };
  CHECK(parse(base()).quantization.format == WeightFormat::plain);
  CHECK(parse(with(base(), {{"quantization_config", nullptr}})).quantization.format == WeightFormat::plain);

  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", true}};
  QuantizationConfig config = read(gptq);
  CHECK(config.format == WeightFormat::gptq);
  CHECK(config.group_size == 128);
  CHECK(config.ordered_by_activation);
  CHECK(config.zeros_less_one);
  CHECK_FALSE(read(with(gptq, {{"checkpoint_format", "gptq_v2"}})).zeros_less_one);
  CHECK(read(with(gptq, {{"group_size", -1}})).group_size == 0);
  CHECK_THAT(refused(with(gptq, {{"bits", 8}})),
             Contains("\"quantization_config.bits\" is 8, but of this method only 4 bits"));
  CHECK_THAT(refused(with(gptq, {{"bits", 3}})), Contains("only 4 bits"));
  CHECK_THAT(refused(with(gptq, {{"group_size", 0}})), Contains("expected -1 or a number of inputs"));
  CHECK_THAT(refused(without(gptq, "group_size")), Contains("\"quantization_config.group_size\" is missing"));
  CHECK_THAT(refused(with(gptq, {{"checkpoint_format", "marlin"}})), Contains("but only gptq and gptq_v2"));
  CHECK_THAT(refused(with(gptq, {{"is_marlin_format", true}})), Contains("is_marlin_format"));

  const json awq = {
      {"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"version", "GEMM"}, {"zero_point", true}};
  config = read(awq);
  CHECK(config.format == WeightFormat::awq);
  CHECK(config.group_size == 64);
  CHECK(read({{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 32}}).group_size == 32);
  CHECK_THAT(refused(with(awq, {{"version", "gemv"}})), Contains("\"gemv\", but only gemm"));
  CHECK_THAT(refused(with(awq, {{"zero_point", false}})), Contains("only weights with zeros"));

  const json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}};
  config = read(fp8);
  CHECK(config.format == WeightFormat::fp8);
  CHECK(config.block_rows == 128);
  CHECK(config.block_cols == 64);
  CHECK(read({{"quant_method", "fp8"}, {"weight_block_size", nullptr}}).block_rows == 0);
  for (const json& block : {json(128), json({128}), json({128, 0}), json({128, "64"}), json({128, -1})})
    CHECK_THAT(refused(with(fp8, {{"weight_block_size", block}})), Contains("expected two numbers"));
  CHECK_THAT(refused(with(fp8, {{"fmt", "e5m2"}})), Contains("but only e4m3"));

  const auto compressed = [](const json& weights, const std::string& format = "float-quantized") {
    return json{{"quant_method", "compressed-tensors"},
                {"format", format},
                {"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"Linear"}}}}}}};
  };
  const json channel = {{"type", "float"}, {"num_bits", 8}, {"strategy", "channel"}, {"symmetric", true}};
  CHECK(read(compressed(channel)).format == WeightFormat::fp8);
  CHECK(read(compressed(with(channel, {{"strategy", "block"}, {"block_structure", {128, 32}}}))).block_cols == 32);
  CHECK_THAT(refused(compressed(with(channel, {{"strategy", "block"}}))), Contains("block_structure\" is missing"));
  CHECK_THAT(refused(compressed(with(channel, {{"strategy", "group"}}))), Contains("only tensor, channel and block"));
  CHECK_THAT(refused(compressed(with(channel, {{"type", "int"}}))), Contains("but only float"));
  CHECK_THAT(refused(compressed(with(channel, {{"num_bits", 4}}))), Contains("but only 8"));
  CHECK_THAT(refused(compressed(channel, "pack-quantized")),
             Contains("\"pack-quantized\", but of compressed-tensors only float-quantized"));
  CHECK_THAT(refused(compressed(nullptr)), Contains("group_0.weights\" is null, expected how"));
  CHECK_THAT(refused(without(compressed(channel), "config_groups")), Contains("expected an object of schemes"));

  CHECK_THAT(refused({{"quant_method", "bitsandbytes"}}),
             Contains("\"bitsandbytes\", but supported are fp8, compressed-tensors, gptq, awq and mxfp4"));
  CHECK_THAT(refused(json::object()), Contains("\"quantization_config.quant_method\" is missing"));
  CHECK_THAT(refused(7), Contains("expected an object"));
}

TEST_CASE("a plain Llama configuration") {
  const ModelConfig config = parse(base());
  CHECK(config.architecture == "LlamaForCausalLM");
  CHECK(config.layers == 4);
  CHECK(config.width == 64);
  CHECK(config.heads == 4);
  CHECK(config.kv_heads == 2);
  CHECK(config.head_dim == 16);
  CHECK(config.ffn_width == 112);
  CHECK(config.vocabulary == 320);
  CHECK(config.context == 512);
  CHECK(config.norm_eps == 1e-5f);
  CHECK_FALSE(config.tied_embeddings);
  CHECK_FALSE(config.attention_bias);
  CHECK_FALSE(config.qk_norm);
  CHECK(config.rope.theta == 10000.0);
  CHECK(config.rope.scaling == RopeScaling::none);
  CHECK(config.window == std::vector<std::int32_t>(4, 0));
  CHECK(config.eos_tokens.empty());
  CHECK(config.bos_token == -1);
}

TEST_CASE("absent and null keys take Transformers' meaning") {
  CHECK(parse(without(base(), "num_key_value_heads")).kv_heads == 4);
  CHECK(parse(with(base(), {{"num_key_value_heads", nullptr}})).kv_heads == 4);
  CHECK(parse(with(base(), {{"head_dim", nullptr}})).head_dim == 16);
  CHECK(parse(with(base(), {{"head_dim", 32}})).head_dim == 32);
  CHECK(parse(base("Qwen3ForCausalLM")).head_dim == 128);
  CHECK(parse(without(base(), "rms_norm_eps")).norm_eps == 1e-6f);
  CHECK(parse(with(base(), {{"eos_token_id", nullptr}})).eos_tokens.empty());
  CHECK(parse(with(base(), {{"eos_token_id", 7}})).eos_tokens == std::vector<std::int32_t>{7});
  CHECK(parse(with(base(), {{"eos_token_id", {7, 9}}})).eos_tokens == std::vector<std::int32_t>{7, 9});
  CHECK(parse(with(base(), {{"bos_token_id", 1}})).bos_token == 1);
}

TEST_CASE("biases and norms follow the family") {
  const ModelConfig llama = parse(with(base(), {{"attention_bias", true}, {"mlp_bias", true}}));
  CHECK((llama.attention_bias && llama.output_bias && llama.mlp_bias && !llama.qk_norm));
  const ModelConfig qwen2 = parse(base("Qwen2ForCausalLM"));
  CHECK((qwen2.attention_bias && !qwen2.output_bias && !qwen2.mlp_bias && !qwen2.qk_norm));
  const ModelConfig qwen3 = parse(base("Qwen3ForCausalLM"));
  CHECK((!qwen3.attention_bias && !qwen3.output_bias && !qwen3.mlp_bias && qwen3.qk_norm));
  const ModelConfig qwen3_biased = parse(with(base("Qwen3ForCausalLM"), {{"attention_bias", true}}));
  CHECK((qwen3_biased.attention_bias && qwen3_biased.output_bias));
  CHECK_THAT(problem(with(base("MistralForCausalLM"), {{"attention_bias", true}})),
             Equals("config.json: \"attention_bias\" is true, which this architecture does not have"));
  CHECK_THAT(problem(with(base("Qwen2ForCausalLM"), {{"mlp_bias", true}})), Contains("\"mlp_bias\" is true"));
}

TEST_CASE("sliding windows follow the family") {
  using Windows = std::vector<std::int32_t>;
  const json mistral = base("MistralForCausalLM"), qwen = base("Qwen2ForCausalLM");
  CHECK(parse(with(mistral, {{"sliding_window", 16}})).window == Windows(4, 16));
  CHECK(parse(with(mistral, {{"sliding_window", nullptr}})).window == Windows(4, 0));
  CHECK(parse(mistral).window == Windows(4, 4096));
  CHECK(parse(with(base(), {{"sliding_window", 16}})).window == Windows(4, 0));
  CHECK(parse(base("Phi3ForCausalLM")).window == Windows(4, 0));
  CHECK(parse(with(base("Phi3ForCausalLM"), {{"sliding_window", 40}})).window == Windows(4, 40));

  CHECK(parse(with(qwen, {{"sliding_window", 8}, {"max_window_layers", 2}})).window == Windows(4, 0));
  const json windowed = with(qwen, {{"use_sliding_window", true}, {"sliding_window", 8}});
  CHECK(parse(with(windowed, {{"max_window_layers", 2}})).window == Windows{0, 0, 8, 8});
  CHECK(parse(with(windowed, {{"max_window_layers", 0}})).window == Windows(4, 8));
  CHECK(parse(windowed).window == Windows(4, 0));
  const json types = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  CHECK(parse(with(windowed, {{"layer_types", types}})).window == Windows{8, 0, 8, 0});

  CHECK_THAT(problem(with(qwen, {{"layer_types", types}})), Contains("there is no sliding window"));
  CHECK_THAT(problem(with(windowed, {{"layer_types", json::array({"full_attention"})}})),
             Contains("expected a list of 4"));
  CHECK_THAT(problem(with(windowed, {{"layer_types", {"full_attention", "x", "x", "x"}}})), Contains("with \"x\""));
  CHECK_THAT(problem(with(mistral, {{"sliding_window", 0}})), Contains("\"sliding_window\" is 0"));
  CHECK_THAT(problem(with(mistral, {{"layer_types", types}})), Contains("differs by layer is not supported"));
}

TEST_CASE("RoPE has three spellings with one meaning") {
  const json scaling = {
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  const json spellings[] = {
      {{"rope_theta", 500000.0}, {"rope_scaling", with(scaling, {{"rope_type", "llama3"}})}},
      {{"rope_theta", 500000.0}, {"rope_scaling", with(scaling, {{"type", "llama3"}})}},
      {{"rope_parameters", with(scaling, {{"rope_type", "llama3"}, {"rope_theta", 500000.0}})}},
      {{"rope_scaling", nullptr},
       {"rope_parameters", with(scaling, {{"rope_type", "llama3"}, {"rope_theta", 500000}})}},
  };
  for (const json& spelling : spellings) {
    const RopeConfig rope = parse(with(base(), spelling)).rope;
    CHECK(rope.theta == 500000.0);
    CHECK(rope.scaling == RopeScaling::llama3);
    CHECK(rope.factor == 8.0);
    CHECK(rope.low_freq_factor == 1.0);
    CHECK(rope.high_freq_factor == 4.0);
    CHECK(rope.original_context == 64);
  }
  CHECK(parse(with(base(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}})).rope.factor == 2.0);
  CHECK(parse(with(base(), {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}})).rope.theta == 5e5);
}

TEST_CASE("what changes the numbers and is not supported is named") {
  const auto scaling = [](const json& value) { return with(base(), {{"rope_scaling", value}}); };
  CHECK_THAT(problem(scaling({{"type", "dynamic"}, {"factor", 2.0}})),
             Equals("config.json: \"rope_scaling.type\" is \"dynamic\", which is not supported; supported are default, "
                    "linear, llama3, yarn"));
  CHECK_THAT(problem(scaling({{"rope_type", "longrope"}})), Contains("\"rope_scaling.rope_type\" is \"longrope\""));
  CHECK_THAT(problem(with(base(), {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}})),
             Contains("\"rope_parameters.full_attention\" is an object, but RoPE that differs by layer type"));
  CHECK_THAT(problem(with(base(), {{"partial_rotary_factor", 0.5}})), Contains("\"partial_rotary_factor\" is 0.5"));
  CHECK_THAT(problem(with(base(), {{"rope_parameters", {{"partial_rotary_factor", 0.75}}}})), Contains("0.75"));
  CHECK_THAT(problem(with(base(), {{"hidden_act", "gelu"}})), Contains("\"hidden_act\" is \"gelu\", but only silu"));
  CHECK_THAT(problem(with(base(), {{"num_local_experts", 8}})), Contains("mixtures of experts"));
  CHECK_THAT(problem(with(base(), {{"no_rope_layers", {1, 1, 0, 1}}})), Contains("layers without RoPE"));
  CHECK_THAT(
      problem(with(base(), {{"architectures", json::array({"Gemma2ForCausalLM"})}})),
      Contains("\"Gemma2ForCausalLM\", which is not supported; supported are LlamaForCausalLM, Qwen2ForCausalLM"));
  CHECK_THAT(problem(without(base(), "architectures")),
             Contains("\"architectures\" is missing, expected a list of one"));
}

namespace {

json gemma() {
  return with(base(), {{"architectures", json::array({"Gemma3ForCausalLM"})},
                       {"num_hidden_layers", 7},
                       {"head_dim", 24},
                       {"hidden_activation", "gelu_pytorch_tanh"},
                       {"query_pre_attn_scalar", 20},
                       {"sliding_window", 33}});
}

}  // namespace

TEST_CASE("Gemma 3: windows, the RoPE of each layer, and what it scales") {
  const ModelConfig config = parse(gemma());
  CHECK(config.window == std::vector<std::int32_t>{33, 33, 33, 33, 33, 0, 33});
  CHECK(config.rope_kind(4) == RopeKind::local);
  CHECK(config.rope_kind(5) == RopeKind::global);
  CHECK(config.local_rope.theta == 10000.0);
  CHECK(config.post_norms);
  CHECK(config.qk_norm);
  CHECK(config.tied_embeddings);
  CHECK_FALSE(parse(with(gemma(), {{"tie_word_embeddings", false}})).tied_embeddings);
  CHECK(config.norm_offset == 1.0f);
  CHECK(config.activation == GateActivation::gelu_tanh);
  CHECK(config.embedding_scale == std::sqrt(static_cast<float>(config.width)));
  CHECK(config.score_scale() == 1.0f / std::sqrt(20.0f));
  CHECK(config.logit_cap == 0.0f);
  CHECK(parse(without(gemma(), "head_dim")).head_dim == 256);
  CHECK(parse(with(gemma(), {{"final_logit_softcapping", 30}})).logit_cap == 30.0f);
  CHECK(parse(with(gemma(), {{"sliding_window_pattern", 2}})).window ==
        std::vector<std::int32_t>{33, 0, 33, 0, 33, 0, 33});

  const json full = "full_attention", sliding = "sliding_attention";
  const ModelConfig listed =
      parse(with(gemma(), {{"layer_types", json::array({full, sliding, full, full, full, full, full})},
                           {"rope_theta", nullptr},
                           {"rope_parameters",
                            {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 5e5}}},
                             {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 777}}}}}}));
  CHECK(listed.window == std::vector<std::int32_t>{0, 33, 0, 0, 0, 0, 0});
  CHECK(listed.rope.theta == 5e5);
  CHECK(listed.rope.factor == 8.0);
  CHECK(listed.local_rope.theta == 777.0);
  CHECK(listed.local_rope.scaling == RopeScaling::none);
  const ModelConfig older = parse(with(
      gemma(),
      {{"rope_theta", 2e6}, {"rope_local_base_freq", 555}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}));
  CHECK(older.rope.theta == 2e6);
  CHECK(older.rope.factor == 4.0);
  CHECK(older.local_rope.theta == 555.0);
  CHECK(older.local_rope.scaling == RopeScaling::none);
  CHECK(config.rope.theta == 1e6);

  CHECK_THAT(problem(with(gemma(), {{"attn_logit_softcapping", 50}})), Contains("soft caps of attention scores"));
  CHECK_THAT(problem(with(gemma(), {{"use_bidirectional_attention", true}})), Contains("only causal attention"));
  CHECK_THAT(problem(with(gemma(), {{"hidden_activation", "silu"}})), Contains("only gelu_pytorch_tanh"));
  CHECK_THAT(problem(with(gemma(), {{"query_pre_attn_scalar", 0}})), Contains("\"query_pre_attn_scalar\" is 0"));
  CHECK_THAT(problem(with(gemma(), {{"sliding_window", nullptr}})), Contains("expected a number of tokens"));
  CHECK_THAT(problem(with(gemma(), {{"sliding_window_pattern", 0}})), Contains("\"sliding_window_pattern\" is 0"));
  CHECK_THAT(problem(with(gemma(), {{"layer_types", json::array({full})}})), Contains("expected a list of 7"));
  CHECK_THAT(problem(with(gemma(), {{"rope_parameters", {{"sliding_attention", {{"rope_type", "longrope"}}}}}})),
             Contains("\"rope_parameters.sliding_attention.rope_type\" is \"longrope\""));
}

TEST_CASE("SmolLM3: layers without RoPE, and their windows") {
  const json smol = with(base("SmolLM3ForCausalLM"), {{"num_hidden_layers", 5}});
  constexpr RopeKind rope = RopeKind::global, none = RopeKind::none;
  const ModelConfig config = parse(smol);
  CHECK(config.rope_kinds == std::vector{rope, rope, rope, none, rope});
  CHECK(config.window == std::vector<std::int32_t>(5, 0));
  CHECK(config.rope.theta == 2e6);
  CHECK(config.tied_embeddings);
  CHECK(parse(with(smol, {{"no_rope_layer_interval", 2}})).rope_kinds == std::vector{rope, none, rope, none, rope});
  const json listed = with(smol, {{"no_rope_layers", {0, 1, 1, 0, 1, 1}}});  // longer lists are in use
  CHECK(parse(listed).rope_kinds == std::vector{none, rope, rope, none, rope});
  const json windows = with(listed, {{"use_sliding_window", true}, {"sliding_window", 9}});
  CHECK(parse(windows).window == std::vector<std::int32_t>{9, 0, 0, 9, 0});
  const json full = "full_attention", sliding = "sliding_attention";
  CHECK(parse(with(windows, {{"layer_types", json::array({full, sliding, full, full, full})}})).window ==
        std::vector<std::int32_t>{0, 9, 0, 0, 0});
  CHECK_THAT(problem(with(smol, {{"no_rope_layers", {1, 1}}})), Contains("expected a list of 5"));
  CHECK_THAT(problem(with(smol, {{"no_rope_layers", {1, 1, 2, 1, 1}}})), Contains("with 2, expected 0 or 1"));
  CHECK_THAT(problem(with(smol, {{"no_rope_layers", 1}})), Contains("expected a list of 5"));
  CHECK_THAT(problem(with(smol, {{"no_rope_layer_interval", 0}})), Contains("\"no_rope_layer_interval\" is 0"));
}

TEST_CASE("mixtures of experts: sizes, the layers that have one, and what is refused") {
  const MixtureConfig mixtral =
      parse(with(base("MixtralForCausalLM"), {{"num_local_experts", 6}, {"num_experts_per_tok", 3}})).mixture;
  CHECK(mixtral.experts == 6);
  CHECK(mixtral.chosen == 3);
  CHECK(mixtral.ffn_width == 112);
  CHECK(mixtral.normalized);
  for (std::int32_t layer = 0; layer < 4; ++layer) CHECK(mixtral.in(layer));

  const json qwen = with(base("Qwen3MoeForCausalLM"), {{"num_experts", 12},
                                                       {"num_experts_per_tok", 4},
                                                       {"moe_intermediate_size", 40},
                                                       {"decoder_sparse_step", 2},
                                                       {"mlp_only_layers", {3}}});
  const ModelConfig config = parse(qwen);
  CHECK(config.qk_norm);
  CHECK(config.head_dim == 16);
  CHECK(config.ffn_width == 112);
  CHECK(config.mixture.ffn_width == 40);
  CHECK_FALSE(config.mixture.normalized);
  CHECK(parse(with(qwen, {{"norm_topk_prob", true}})).mixture.normalized);
  CHECK(config.window == std::vector<std::int32_t>(4, 0));
  CHECK(parse(with(qwen, {{"use_sliding_window", true}, {"sliding_window", 7}})).window ==
        std::vector<std::int32_t>(4, 7));
  const std::vector<bool> mixed = {config.mixture.in(0), config.mixture.in(1), config.mixture.in(2),
                                   config.mixture.in(3)};
  CHECK(mixed == std::vector<bool>{false, true, false, false});

  CHECK(parse(with(without(qwen, "num_experts"), {{"num_local_experts", 20}})).mixture.experts == 20);
  CHECK_THAT(problem(with(qwen, {{"num_experts_per_tok", 13}})),
             Contains("expected at most 12, the number of experts"));
  CHECK_THAT(problem(with(qwen, {{"num_experts", 0}})), Contains("\"num_experts\" is 0"));
  CHECK_THAT(problem(with(qwen, {{"num_experts", 1 << 20}})), Contains("\"num_experts\" is 1048576"));
  CHECK_THAT(problem(with(qwen, {{"moe_intermediate_size", 0}})), Contains("\"moe_intermediate_size\" is 0"));
  CHECK_THAT(problem(with(qwen, {{"mlp_only_layers", {4}}})), Contains("\"mlp_only_layers\""));
  CHECK_THAT(problem(with(qwen, {{"n_routed_experts", 4}})),
             Contains("mixtures of experts are not supported for this"));
}

TEST_CASE("heads that are rotated in part, and LongRoPE, in the families that have them") {
  const ModelConfig glm = parse(without(with(base("Glm4ForCausalLM"), {{"head_dim", 24}}), "rms_norm_eps"));
  CHECK(glm.rope.width == 12);  // the half, unless the file says otherwise
  CHECK(glm.rotated(RopeKind::global) == 12);
  CHECK(glm.interleaved_heads);
  CHECK((glm.pre_norms && glm.post_norms && glm.attention_bias && !glm.output_bias));
  CHECK(glm.norm_eps == 1.5625e-7f);
  CHECK(parse(with(base("Glm4ForCausalLM"), {{"head_dim", 24}, {"partial_rotary_factor", 1.0}})).rope.width == 0);
  CHECK_THAT(problem(with(base("Glm4ForCausalLM"), {{"head_dim", 24}, {"partial_rotary_factor", 0.375}})),
             Contains("rotates 9 columns of heads of 24, expected an even number"));
  CHECK_THAT(problem(with(base("Glm4ForCausalLM"), {{"head_dim", 24}, {"partial_rotary_factor", 0.0}})),
             Contains("rotates 0 columns"));

  const json lists = {{"type", "longrope"},
                      {"short_factor", {1.0, 1.1, 1.2, 1.3, 1.4, 1.5}},
                      {"long_factor", {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}};
  const auto phi = [&](const json& changes) {
    return with(base("Phi3ForCausalLM"), {{"partial_rotary_factor", 0.75},
                                          {"original_max_position_embeddings", 128},
                                          {"rope_scaling", with(lists, changes)}});
  };
  const ModelConfig config = parse(phi(json::object()));
  CHECK(config.rope.width == 12);
  CHECK(config.rope.scaling == RopeScaling::longrope);
  CHECK(config.rope.original_context == 128);
  CHECK(config.rope.divisors.back() == 1.5f);
  CHECK(config.rope.long_divisors.back() == 6.0f);
  CHECK(config.rope.attention_factor == Approx(std::sqrt(1.0 + std::log(4.0) / std::log(128.0))));
  CHECK(parse(phi({{"attention_factor", 1.25}})).rope.attention_factor == 1.25);
  CHECK_THAT(problem(phi({{"long_factor", {1.0, 2.0}}})), Contains("expected a list of 6 numbers"));
  CHECK_THAT(problem(phi({{"long_factor", {1.0, 2.0, 3.0, 4.0, 5.0, 0.0}}})), Contains("expected a list of 6 numbers"));
  CHECK_THAT(problem(phi({{"short_factor", nullptr}})), Contains("\"rope_scaling.short_factor\""));
  CHECK_THAT(problem(phi({{"type", "dynamic"}})), Contains("linear, llama3, longrope, yarn"));
}

TEST_CASE("norms, multipliers and temperatures follow the family") {
  const ModelConfig olmo = parse(with(base("Olmo3ForCausalLM"), {{"sliding_window", 32}}));
  CHECK((olmo.qk_norm && olmo.qk_norm_of_row && !olmo.pre_norms && olmo.post_norms));
  CHECK(olmo.window == std::vector<std::int32_t>{32, 32, 32, 0});
  CHECK((olmo.rope.theta == 500000.0 && olmo.local_rope.theta == 500000.0));
  CHECK(olmo.rope_kind(0) == RopeKind::local);

  const json exaone = with(base("Exaone4ForCausalLM"), {{"sliding_window", 16}, {"sliding_window_pattern", "LG"}});
  CHECK(parse(exaone).window == std::vector<std::int32_t>{16, 0, 16, 0});
  CHECK(parse(exaone).rope_kind(0) == RopeKind::global);
  CHECK(parse(exaone).rope_kind(1) == RopeKind::none);
  CHECK(parse(with(exaone, {{"sliding_window", nullptr}})).rope_kinds.empty());
  CHECK_THAT(problem(with(exaone, {{"sliding_window_pattern", "GL"}})),
             Contains("expected a number, or letters as LLLG"));

  const ModelConfig granite = parse(with(base("GraniteForCausalLM"), {{"embedding_multiplier", 12},
                                                                      {"residual_multiplier", 0.22},
                                                                      {"attention_multiplier", 0.0078125},
                                                                      {"logits_scaling", 16}}));
  CHECK(granite.embedding_scale == 12.0f);
  CHECK(granite.residual_scale == 0.22f);
  CHECK(granite.score_scale() == 0.0078125f);
  CHECK(granite.logit_scale == 0.0625f);
  CHECK_THAT(problem(with(base("GraniteForCausalLM"), {{"logits_scaling", 0}})), Contains("\"logits_scaling\" is 0"));

  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  const auto ministral = [&](const json& more) {
    return with(base("Ministral3ForCausalLM"), {{"head_dim", 16}, {"rope_parameters", with(yarn, more)}});
  };
  const QueryTemperature temperature = parse(ministral({{"llama_4_scaling_beta", 0.1}})).temperature;
  CHECK(temperature.period == 128);
  CHECK(temperature.at(127) == 1.0f);
  CHECK(temperature.at(128) == Approx(1.0 + 0.1 * std::log(2.0)));
  CHECK(parse(ministral(json::object())).temperature.beta == 0.0);
  CHECK_THAT(problem(with(base("Ministral3ForCausalLM"),
                          {{"head_dim", 16}, {"rope_parameters", {{"llama_4_scaling_beta", 0.1}}}})),
             Contains("expected original_max_position_embeddings beside it"));
}

TEST_CASE("Gemma 4: heads, keys and values, MLPs and RoPE by layer, inputs of tokens") {
  using Numbers = std::vector<std::int32_t>;
  const char *s = "sliding_attention", *f = "full_attention";
  const json plain = with(base("Gemma4ForCausalLM"), {{"num_hidden_layers", 6},
                                                      {"head_dim", 16},
                                                      {"global_head_dim", 32},
                                                      {"hidden_size_per_layer_input", 8},
                                                      {"vocab_size_per_layer_input", 300},
                                                      {"layer_types", {s, f, s, f, s, f}},
                                                      {"sliding_window", 20}});
  const ModelConfig config = parse(plain);
  CHECK((config.tied_embeddings && config.qk_norm && config.value_norm && config.post_norms && config.layer_scales));
  CHECK(config.norm_offset == 0.0f);
  CHECK((config.activation == GateActivation::gelu_tanh && config.embedding_scale == 8.0f));
  CHECK((config.score_scale(0) == 1.0f && config.score_scale(1) == 1.0f && config.logit_cap == 0.0f));
  CHECK(config.window == Numbers{20, 0, 20, 0, 20, 0});
  CHECK(config.shapes.head_dim == Numbers{16, 32, 16, 32, 16, 32});
  CHECK(config.shapes.kv_heads == Numbers(6, 2));
  CHECK(config.shapes.kv_layer == Numbers{0, 1, 2, 3, 4, 5});
  CHECK(config.shapes.ffn_width == Numbers(6, 112));
  CHECK(config.first_kv_reader() == 6);
  CHECK_FALSE(config.keys_as_values(1));
  CHECK((config.token_input.width == 8 && config.token_input.rows == 300));
  CHECK(config.mixture.experts == 0);
  CHECK((config.local_rope.theta == 10000.0 && config.local_rope.width == 16 && config.local_rope.turning == 0));
  CHECK((config.rope.theta == 1e6 && config.rope.width == 32 && config.rope.turning == 4));
  const Rope rope(config);
  REQUIRE(rope.inverse_frequencies().size() == 16);
  CHECK(rope.inverse_frequencies()[3] == Approx(std::pow(1e6, -6.0 / 32)));
  CHECK(rope.inverse_frequencies()[4] == 0.0);

  const ModelConfig shared =
      parse(with(plain, {{"num_kv_shared_layers", 3}, {"use_double_wide_mlp", true}, {"final_logit_softcapping", 30}}));
  CHECK(shared.shapes.kv_layer == Numbers{0, 1, 2, 1, 2, 1});
  CHECK(shared.shapes.ffn_width == Numbers{112, 112, 112, 224, 224, 224});
  CHECK((shared.stores_kv(2) && !shared.stores_kv(3) && shared.first_kv_reader() == 3 && shared.logit_cap == 30.0f));
  CHECK(parse(with(plain, {{"num_kv_shared_layers", 4}})).shapes.kv_layer == Numbers{0, 1, 0, 1, 0, 1});
  CHECK_THAT(problem(with(plain, {{"num_kv_shared_layers", 5}})),
             Contains("\"num_kv_shared_layers\" is 5, but layer 1 finds no layer of its kind"));
  CHECK_THAT(problem(with(plain, {{"num_kv_shared_layers", 6}})), Contains("from 0 to 5"));

  const ModelConfig values = parse(with(plain, {{"attention_k_eq_v", true}, {"num_global_key_value_heads", 1}}));
  CHECK((values.keys_as_values(1) && !values.keys_as_values(0)));
  CHECK(values.shapes.kv_heads == Numbers{2, 1, 2, 1, 2, 1});
  CHECK(parse(with(plain, {{"num_global_key_value_heads", 1}})).shapes.kv_heads == Numbers(6, 2));
  CHECK_THAT(problem(with(plain, {{"attention_k_eq_v", true}, {"num_global_key_value_heads", 3}})),
             Contains("layer 1 has 3 KV heads"));
  const json listed = {{"1", {{"head_dim", 24}}}, {"3", {{"head_dim", 24}}}, {"5", {{"head_dim", 24}}}};
  CHECK(parse(with(plain, {{"per_layer_config", listed}})).shapes.head_dim == Numbers{16, 24, 16, 24, 16, 24});
  CHECK_THAT(problem(with(plain, {{"per_layer_config", {{"1", {{"head_dim", 24}}}}}})),
             Contains("layer 3 has heads of 16, expected 24"));
  CHECK_THAT(problem(with(plain, {{"per_layer_config", {{"1", {{"num_attention_heads", 2}}}}}})),
             Contains("\"per_layer_config.1.num_attention_heads\" is 2"));
  CHECK_THAT(
      problem(with(plain, {{"num_kv_shared_layers", 2}, {"per_layer_config", {{"4", {{"num_key_value_heads", 4}}}}}})),
      Contains("layer 4 has other heads than layer 2"));

  const json experts = {
      {"enable_moe_block", true}, {"num_experts", 8}, {"top_k_experts", 2}, {"moe_intermediate_size", 24}};
  const MixtureConfig mixture = parse(with(plain, experts)).mixture;
  CHECK((mixture.beside_mlp && mixture.experts == 8 && mixture.chosen == 2 && mixture.ffn_width == 24));
  CHECK_THAT(problem(with(with(plain, experts), {{"top_k_experts", 9}})), Contains("expected at most 8"));
  CHECK(parse(with(plain, {{"hidden_size_per_layer_input", 0}})).token_input.width == 0);
  CHECK(parse(with(plain, {{"hidden_size_per_layer_input", nullptr}})).token_input.width == 0);
  CHECK(parse(without(plain, "hidden_size_per_layer_input")).token_input.width == 256);
  CHECK(parse(with(plain, {{"layer_types", {s, f, s, f, s, s}}})).window.back() == 0);  // the last attends to all
  CHECK(parse(without(plain, "layer_types")).window == Numbers{20, 20, 20, 20, 20, 0});
  CHECK_THAT(problem(with(plain, {{"use_bidirectional_attention", "all"}})), Contains("only causal attention"));
  CHECK(parse(with(plain, {{"use_bidirectional_attention", "vision"}})).window == config.window);
  const auto rope_of = [&](const json& full) {
    return with(plain, {{"rope_parameters", {{s, {{"rope_theta", 1e4}}}, {f, full}}}});
  };
  const ModelConfig divided = parse(rope_of({{"rope_type", "proportional"}, {"rope_theta", 1e5}, {"factor", 4.0}}));
  CHECK((divided.rope.turning == 16 && divided.rope.factor == 4.0 && divided.rope.scaling == RopeScaling::linear));
  CHECK_THAT(problem(rope_of({{"rope_type", "yarn"}, {"rope_theta", 1e5}})), Contains("default, proportional"));
  CHECK_THAT(problem(rope_of({{"rope_type", "default"}})), Contains("\"rope_parameters.full_attention.rope_theta\""));

  const json outer = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                      {"text_config", with(without(plain, "architectures"), {{"model_type", "gemma4_text"}})},
                      {"vision_config", json::object()},
                      {"audio_config", nullptr}};
  CHECK(parse(outer).left_out == std::vector<std::string>{"a vision tower"});
  CHECK(parse(outer).architecture == "Gemma4ForCausalLM");
}

TEST_CASE("Gemma 3n: residual streams, sparse layers, MLPs and shared KV by layer, inputs of tokens") {
  using Numbers = std::vector<std::int32_t>;
  const char *s = "sliding_attention", *f = "full_attention";
  const json plain = with(base("Gemma3nForCausalLM"), {{"num_hidden_layers", 6},
                                                       {"head_dim", 16},
                                                       {"hidden_size_per_layer_input", 8},
                                                       {"vocab_size_per_layer_input", 300},
                                                       {"num_kv_shared_layers", 3},
                                                       {"layer_types", {s, f, s, f, s, f}},
                                                       {"sliding_window", 20}});
  const ModelConfig config = parse(plain);
  CHECK((config.tied_embeddings && config.qk_norm && config.value_norm && config.post_norms && !config.layer_scales));
  CHECK((config.norm_offset == 0.0f && config.score_scale(0) == 1.0f && config.embedding_scale == 8.0f));
  CHECK(config.window == Numbers{20, 0, 20, 0, 20, 0});
  CHECK(config.shapes.kv_layer == Numbers{0, 1, 2, 1, 2, 1});
  CHECK(config.shapes.ffn_width == Numbers(6, 112));
  CHECK((config.rope.theta == 1e6 && config.local_rope.theta == 10000.0));
  CHECK((config.altup.streams == 4 && config.altup.active == 0 && config.altup.scaled));
  CHECK((config.altup.laurel_rank == 64 && config.stream_width() == 4 * config.width));
  CHECK((config.token_input.width == 8 && config.token_input.rows == 300));
  CHECK(std::isnan(config.gate_deviations(0)));  // with more than ten layers the first ten are sparse
  CHECK_THAT(problem(without(plain, "layer_types")), Contains("layer 4 finds no layer of its kind"));
  const json unshared = with(without(plain, "layer_types"), {{"num_kv_shared_layers", 0}});
  CHECK(parse(unshared).window == Numbers{20, 20, 20, 20, 0, 20});

  const ModelConfig sparse = parse(with(plain, {{"activation_sparsity_pattern", {0.95, 0.5, 0.25, 0.0, 0.0, 0.0}},
                                                {"intermediate_size", {32, 48, 64, 80, 96, 112}}}));
  CHECK(sparse.gate_deviations(0) == Approx(1.6448536));
  CHECK(std::abs(sparse.gate_deviations(1)) < 1e-6f);
  CHECK(sparse.gate_deviations(2) == Approx(-0.6744898));
  CHECK(std::isnan(sparse.gate_deviations(3)));
  CHECK(sparse.shapes.ffn_width == Numbers{32, 48, 64, 80, 96, 112});
  CHECK(sparse.ffn_width == 112);

  CHECK_THAT(problem(with(plain, {{"activation_sparsity_pattern", {0.5}}})), Contains("expected a list of 6"));
  CHECK_THAT(problem(with(plain, {{"activation_sparsity_pattern", {0.5, 1.0, 0, 0, 0, 0}}})),
             Contains("with 1.0 for layer 1, expected at least 0 and less than 1"));
  CHECK_THAT(problem(with(plain, {{"activation_sparsity_pattern", {0.5, "a", 0, 0, 0, 0}}})),
             Contains("with \"a\" for layer 1"));
  CHECK_THAT(problem(with(plain, {{"activation_sparsity_deviations", {0.5, 1e9, 0, 0, 0, 0}}})),
             Contains("expected -10 to 10"));
  CHECK_THAT(problem(with(plain, {{"intermediate_size", {32, 48}}})), Contains("with 2 numbers, expected 6"));
  CHECK_THAT(problem(with(plain, {{"altup_num_inputs", 1}})), Contains("\"altup_num_inputs\" is 1"));
  CHECK_THAT(problem(with(plain, {{"altup_num_inputs", 17}})), Contains("\"altup_num_inputs\" is 17"));
  CHECK_THAT(problem(with(plain, {{"altup_active_idx", 4}})), Contains("from 0 to 3"));
  CHECK_THAT(problem(with(plain, {{"laurel_rank", 0}})), Contains("\"laurel_rank\" is 0"));
  CHECK_THAT(problem(with(plain, {{"num_kv_shared_layers", 5}})), Contains("layer 1 finds no layer of its kind"));
  CHECK_THAT(problem(with(plain, {{"hidden_size_per_layer_input", 0}})), Contains("expected at least 1"));
  CHECK_THAT(problem(with(plain, {{"attn_logit_softcapping", 50.0}})), Contains("soft caps"));

  const json outer = {{"architectures", {"Gemma3nForConditionalGeneration"}},
                      {"text_config", with(without(plain, "architectures"), {{"model_type", "gemma3n_text"}})},
                      {"vision_config", json::object()},
                      {"audio_config", json::object()}};
  CHECK(parse(outer).architecture == "Gemma3nForCausalLM");
  CHECK(parse(outer).left_out == std::vector<std::string>{"a vision tower", "an audio tower"});
}

TEST_CASE("gpt-oss: sinks, biases, a clamped gate, every second layer with a window, YaRN that is not cut") {
  const json plain = with(base("GptOssForCausalLM"), {{"num_local_experts", 8}});
  const ModelConfig config = parse(plain);
  CHECK((config.sinks && config.attention_bias && config.output_bias && config.mixture.biases));
  CHECK(config.head_dim == 64);
  CHECK((config.mixture.experts == 8 && config.mixture.chosen == 4 && config.mixture.normalized));
  CHECK(config.mixture.ffn_width == config.ffn_width);
  CHECK(config.activation == GateActivation::silu);
  CHECK((config.gate_limit == 7.0f && config.gate_slope == 1.702f));
  CHECK(config.window == std::vector<std::int32_t>{128, 0, 128, 0});
  CHECK((config.rope_kind(0) == RopeKind::global && config.rope_kind(1) == RopeKind::global));
  CHECK((config.rope.scaling == RopeScaling::yarn && !config.rope.truncate && config.rope.theta == 150000.0));
  CHECK((config.rope.factor == 32.0 && config.rope.original_context == 4096));

  const json written =
      with(plain, {{"rope_scaling", {{"rope_type", "default"}}},
                   {"layer_types", {"full_attention", "full_attention", "full_attention", "sliding_attention"}},
                   {"sliding_window", 16},
                   {"attention_bias", false},
                   {"swiglu_limit", 5},
                   {"num_experts_per_tok", 2}});
  CHECK(parse(without(with(plain, {{"num_experts", 6}}), "num_local_experts")).mixture.experts == 6);
  CHECK(parse(written).rope.scaling == RopeScaling::none);
  CHECK(parse(written).window == std::vector<std::int32_t>{0, 0, 0, 16});
  CHECK((!parse(written).attention_bias && !parse(written).output_bias));
  CHECK((parse(written).gate_limit == 5.0f && parse(written).mixture.chosen == 2));
  CHECK_THAT(problem(with(plain, {{"swiglu_limit", 0}})), Contains("\"swiglu_limit\" is 0"));
  CHECK_THAT(problem(with(plain, {{"num_experts_per_tok", 9}})), Contains("expected at most 8"));
  CHECK_THAT(problem(with(plain, {{"hidden_act", "gelu"}})), Contains("only silu is supported"));
  CHECK_THAT(problem(with(plain, {{"layer_types", {"chunked_attention"}}})), Contains("\"layer_types\""));

  const json packed = with(plain, {{"quantization_config", {{"quant_method", "mxfp4"}}}});
  CHECK(parse(with(packed, {{"intermediate_size", 96}, {"hidden_size", 64}})).quantization.format ==
        WeightFormat::mxfp4);
  CHECK_THAT(problem(with(packed, {{"intermediate_size", 72}, {"hidden_size", 64}})),
             Contains("mxfp4, whose blocks of 32 do not fit hidden_size 64 and intermediate_size 72"));
  CHECK_THAT(problem(with(base("LlamaForCausalLM"), {{"quantization_config", {{"quant_method", "mxfp4"}}}})),
             Contains("mxfp4, which is not supported for this architecture"));
}

TEST_CASE("the text model inside one that also sees or hears is read, and the rest is named") {
  const json gemma = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                      {"eos_token_id", {1, 106}},
                      {"vision_config", {{"hidden_size", 1152}}},
                      {"text_config",
                       {{"model_type", "gemma3_text"},
                        {"hidden_size", 2560},
                        {"intermediate_size", 10240},
                        {"num_hidden_layers", 34},
                        {"sliding_window", 1024},
                        {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}}}};
  const ModelConfig config = parse(gemma);
  CHECK(config.architecture == "Gemma3ForCausalLM");
  CHECK((config.vocabulary == 262208 && config.heads == 8 && config.kv_heads == 4 && config.head_dim == 256));
  CHECK(config.eos_tokens == std::vector<std::int32_t>{1, 106});
  CHECK(config.tied_embeddings);
  CHECK(config.left_out == std::vector<std::string>{"a vision tower"});
  CHECK(parse(base()).left_out.empty());

  json other = gemma;
  other["text_config"]["model_type"] = "whisper";
  CHECK_THAT(problem(other), Contains("\"text_config.model_type\" is \"whisper\"") &&
                                 Contains("gemma3_text, gemma3n_text, gemma4_text, mistral"));
  other["text_config"]["model_type"] = "mistral";
  CHECK_THAT(problem(other), Contains("\"num_attention_heads\" is missing"));
}

TEST_CASE("broken and hostile values are refused by name") {
  CHECK_THAT(test::error_of<ModelError>([] { parse_config("{\"a\": ", "x/config.json"); }),
             Contains("x/config.json: not JSON: parse error at line 1"));
  CHECK_THAT(test::error_of<ModelError>([] { parse_config("[1]", "config.json"); }),
             Equals("config.json: the whole is a list of 1, expected an object"));
  CHECK_THAT(test::error_of<ModelError>([] { parse_config("", "config.json"); }), Contains("not JSON"));

  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "max_position_embeddings"}) {
    INFO(key);
    CHECK_THAT(problem(without(base(), key)), Contains(fmt::format("\"{}\" is missing, expected an integer", key)));
    for (const json& bad : {json(0), json(-1), json(1.5), json("64"), json(true), json(json::array()), json(2147483648),
                            json(-9223372036854775807), json(18446744073709551615u)})
      CHECK_THAT(problem(with(base(), {{key, bad}})), Contains(fmt::format("\"{}\" is ", key)));
  }
  CHECK_THAT(problem(with(base(), {{"num_key_value_heads", 3}})),
             Equals("config.json: \"num_key_value_heads\" is 3, expected a divisor of num_attention_heads, 4"));
  CHECK_THAT(problem(with(base(), {{"hidden_size", 66}})), Contains("expected a multiple of num_attention_heads, 4"));
  CHECK_THAT(problem(with(base(), {{"hidden_size", 60}})), Contains("which makes heads of 15, expected an even width"));
  CHECK_THAT(problem(with(base(), {{"head_dim", 15}})), Contains("\"head_dim\" is 15, which makes heads of 15"));
  CHECK_THAT(problem(with(base(), {{"rms_norm_eps", -1e-5}})), Contains("\"rms_norm_eps\" is -1e-05"));
  CHECK_THAT(problem(with(base(), {{"tie_word_embeddings", 1}})), Contains("is 1, expected true or false"));
  CHECK_THAT(problem(with(base(), {{"eos_token_id", 320}})),
             Contains("\"eos_token_id\" is 320, expected an integer from 0"));
  CHECK_THAT(problem(with(base(), {{"eos_token_id", {1, "2"}}})), Contains("\"eos_token_id\" is a list of 2"));
  CHECK_THAT(problem(with(base(), {{"rope_theta", 1.0}})), Contains("\"rope_theta\" is 1.0"));
  CHECK_THAT(problem(with(base(), {{"rope_scaling", "linear"}})),
             Equals("config.json: \"rope_scaling\" is \"linear\", expected an object"));
  CHECK_THAT(problem(with(base(), {{"rope_scaling", {{"type", "linear"}}}})),
             Contains("\"rope_scaling.factor\" is missing"));
  CHECK_THAT(problem(with(base(), {{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}})),
             Contains("expected a number"));
  CHECK_THAT(
      problem(with(base(), {{"rope_scaling",
                             {{"type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}})),
      Contains("expected more than low_freq_factor, 4"));
}

TEST_CASE("an answer may be ended by at most 64 tokens") {
  json ends = json::array();
  for (std::int32_t id = 0; id < 64; ++id) ends.push_back(id);
  for (std::int32_t id = 0; id < 64; ++id) ends.push_back(id);
  const std::vector<std::int32_t> tokens = parse(with(base(), {{"eos_token_id", ends}})).eos_tokens;
  CHECK(tokens.size() == 64);
  CHECK(tokens.front() == 0);
  CHECK(tokens.back() == 63);
  ends.push_back(319);
  CHECK_THAT(problem(with(base(), {{"eos_token_id", ends}})),
             Equals("config.json: 65 tokens end an answer, expected at most 64"));
}

TEST_CASE("a mixture's list of layers with an MLP is read once, however long it is") {
  json layers = json::array();
  for (int i = 0; i < 200'000; ++i) layers.push_back(0);
  const MixtureConfig mixture = parse(with(base("Qwen3MoeForCausalLM"), {{"mlp_only_layers", layers}})).mixture;
  const double begin = test::thread_seconds();
  int mixtures = 0;
  for (int step = 0; step < 40'000; ++step) mixtures += mixture.in(step % 4) ? 1 : 0;
  CHECK(mixtures == 30'000);
  CHECK(test::thread_seconds() - begin < 0.1 * test::slowdown());
}

TEST_CASE("a number that no double holds is no JSON") {
  CHECK_THAT(test::error_of<ModelError>([] { parse_config("{\"rope_theta\": 1e999}", "config.json"); }),
             Contains("config.json: not JSON: number overflow"));
}

TEST_CASE("deep nesting does not exhaust the stack") {
  const std::string deep = fmt::format("{{\"a\":{}{}}}", std::string(200000, '['), std::string(200000, ']'));
  CHECK_THAT(test::error_of<ModelError>([&] { parse_config(deep, "config.json"); }),
             Contains("config.json: byte 69: expected lists and objects nested at most 64 deep"));
}

TEST_CASE("the golden checkpoints' configurations are read") {
  for (const std::string& name : test::golden_names()) {
    INFO(name);
    const test::Golden golden = test::load_golden(name);
    std::ifstream file(golden.folder / "config.json");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const ModelConfig config = parse_config(text, name);
    CHECK(config.vocabulary == golden.vocabulary);
    CHECK(config.bos_token == (name == "gemma3n" ? 2 : 1));
  }
}

}  // namespace config_test
