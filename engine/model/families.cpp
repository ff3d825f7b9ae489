// SPDX-License-Identifier: Apache-2.0
#include "engine/model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

// Proofs, each of them of all families that have it.
constexpr const char* kGoldens = "goldens";            // tests/golden/models, made with Transformers
constexpr const char* kTransformers = "Transformers";  // tests/golden/check_families.py
constexpr const char* kLlamaCpp = "llama.cpp";         // random models, as folders and as its converter's files
// A published file's name is a proof, too: tests/published ran it.

constexpr const char* kAttentionLayers = "attention";
constexpr const char* kWindowLayers = "attention, some layers within a window";
constexpr const char* kExpertLayers = "attention; experts";

std::string in_code(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}`{}`", text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

std::vector<ModelFamily> model_families() {
  return {
      {.name = "EXAONE 4",
       .classes = {"Exaone4ForCausalLM"},
       .architectures = {"exaone4"},
       .layers = kWindowLayers,
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Falcon-H1",
       .classes = {"FalconH1ForCausalLM"},
       .architectures = {"falcon-h1"},
       .layers = "attention alongside Mamba2",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Gemma 3",
       .classes = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
       .architectures = {"gemma3"},
       .layers = kWindowLayers,
       .proofs = {kGoldens, kTransformers}},
      {.name = "Gemma 3n",
       .classes = {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"},
       .architectures = {"gemma3n"},
       .layers = "attention, some layers within a window, or reading the KV of others; four residual streams",
       .proofs = {kGoldens, kTransformers}},
      {.name = "Gemma 4",
       .classes = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
       .architectures = {"gemma4"},
       .layers = "attention, some layers within a window, or reading the KV of others; experts beside the MLP",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "GLM-4 (0414)",
       .classes = {"Glm4ForCausalLM"},
       .architectures = {"glm4"},
       .layers = kAttentionLayers,
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "gpt-oss",
       .classes = {"GptOssForCausalLM"},
       .architectures = {"gpt-oss"},
       .layers = "attention with sinks, some layers within a window; experts",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Granite 3, and Granite 4 of attention alone",
       .classes = {"GraniteForCausalLM"},
       .architectures = {"granite"},
       .layers = kAttentionLayers,
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Granite 4 (hybrids, with and without experts)",
       .classes = {"GraniteMoeHybridForCausalLM"},
       .architectures = {"granitehybrid"},
       .layers = "attention, Mamba2; experts",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "HunYuan (dense)",
       .classes = {"HunYuanDenseV1ForCausalLM"},
       .architectures = {"hunyuan-dense"},
       .layers = "attention",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "LFM2 MoE",
       .classes = {"Lfm2MoeForCausalLM"},
       .architectures = {"lfm2moe"},
       .layers = "attention, short convolutions; experts",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "LFM2, LFM2.5",
       .classes = {"Lfm2ForCausalLM"},
       .architectures = {"lfm2"},
       .layers = "attention, short convolutions",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Llama 2, 3, 3.1, 3.2, SmolLM, SmolLM2, and what is built like them",
       .classes = {"LlamaForCausalLM"},
       .architectures = {"llama"},
       .layers = kAttentionLayers,
       .proofs = {kGoldens, kTransformers, "SmolLM2-135M"}},
      {.name = "Ministral 3",
       .classes = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"},
       .architectures = {"mistral3"},
       .layers = kAttentionLayers,
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Mistral (Nemo, Small; in GGUF those without a sliding window)",
       .classes = {"MistralForCausalLM"},
       .architectures = {"llama"},
       .layers = "attention, all layers within a window or none",
       .proofs = {kGoldens, kTransformers}},
      {.name = "Mixtral",
       .classes = {"MixtralForCausalLM"},
       .architectures = {"llama"},
       .layers = kExpertLayers,
       .proofs = {kGoldens, kTransformers}},
      {.name = "Nemotron-H, Nemotron Nano 2, Nemotron 3",
       .classes = {"NemotronHForCausalLM"},
       .architectures = {"nemotron_h", "nemotron_h_moe"},
       .layers = "attention, Mamba2, or an MLP or experts alone",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Olmo 3, OLMo 2 in GGUF",
       .classes = {"Olmo3ForCausalLM"},
       .architectures = {"olmo2"},
       .layers = kWindowLayers,
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Phi-3, Phi-4, Phi-4-mini",
       .classes = {"Phi3ForCausalLM"},
       .architectures = {"phi3"},
       .layers = "attention, all layers within a window or none",
       .proofs = {kGoldens, kTransformers}},
      {.name = "Qwen2 MoE (Qwen1.5-MoE, Qwen2-57B-A14B)",
       .classes = {"Qwen2MoeForCausalLM"},
       .architectures = {"qwen2moe"},
       .layers = "attention; experts, one of them for all tokens",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Qwen2, Qwen2.5",
       .classes = {"Qwen2ForCausalLM"},
       .architectures = {"qwen2"},
       .layers = kWindowLayers,
       .proofs = {kGoldens, kTransformers, "Qwen2.5-Coder-0.5B"}},
      {.name = "Qwen3 (dense)",
       .classes = {"Qwen3ForCausalLM"},
       .architectures = {"qwen3"},
       .layers = kAttentionLayers,
       .proofs = {kGoldens, kTransformers}},
      {.name = "Qwen3 MoE",
       .classes = {"Qwen3MoeForCausalLM"},
       .architectures = {"qwen3moe"},
       .layers = kExpertLayers,
       .proofs = {kGoldens, kTransformers}},
      {.name = "Qwen3-Next",
       .classes = {"Qwen3NextForCausalLM"},
       .architectures = {"qwen3next"},
       .layers = "attention, gated delta nets; experts, one of them for all tokens",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Qwen3.5 MoE",
       .classes = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
       .architectures = {"qwen35moe"},
       .layers = "attention, gated delta nets; experts, one of them for all tokens",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "Qwen3.5, 3.6 (dense)",
       .classes = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
       .architectures = {"qwen35"},
       .layers = "attention, gated delta nets",
       .proofs = {kGoldens, kTransformers, kLlamaCpp}},
      {.name = "SmolLM3",
       .classes = {"SmolLM3ForCausalLM"},
       .architectures = {"smollm3"},
       .layers = "attention, some layers without RoPE",
       .proofs = {kGoldens, kTransformers}},
  };
}

std::string families_markdown() {
  std::string text =
      "| family | in `config.json` | in GGUF | layers | compared with |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const ModelFamily& family : model_families())
    text += fmt::format("| {} | {} | {} | {} | {} |\n", family.name, in_code(family.classes),
                        in_code(family.architectures), family.layers, fmt::join(family.proofs, ", "));
  return text;
}

}  // namespace baton
