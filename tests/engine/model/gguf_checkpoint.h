// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder written as the GGUF file of the same model: what converters do with it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/gguf_writer.h"

namespace baton::test {

/// Adds metadata and tensors of a checkpoint without its tokenizer. `type` is how matrices are stored: f32, f16 or
/// bf16. Throws std::runtime_error for a family that GGUF files of llama, qwen2, qwen3, phi3, gemma3, smollm3 and
/// qwen3moe cannot hold.
void add_checkpoint(GgufWriter& writer, const std::filesystem::path& folder, BlockType type);

/// Adds the tokenizer of a tokenizer.json; `pre` names its pre-tokenizer, and is empty for SentencePiece.
void add_tokenizer(GgufWriter& writer, const nlohmann::json& tokenizer, const std::string& pre);

}  // namespace baton::test
