// SPDX-License-Identifier: Apache-2.0
// The parts of a config.json that may differ by layer: RoPE and sliding windows. Only parse_config uses them.
#pragma once

#include <string>

#include "engine/base/json_fields.h"
#include "engine/model/config.h"

namespace baton {

enum class Family : std::uint8_t { llama, qwen2, qwen3, mistral, phi3, gemma3, smollm3, mixtral, qwen3_moe };

inline constexpr std::int32_t kMaxContext = 1 << 27;

/// Reads RoPE's settings, in every spelling. Throws ModelError for what is not supported, by name.
void read_rope(ModelConfig& config, const JsonFields& fields, Family family, const std::string& origin);

/// Reads the window of each layer, and which RoPE it has. Throws ModelError for what is not supported, by name.
void read_windows(ModelConfig& config, const JsonFields& fields, Family family);

}  // namespace baton
