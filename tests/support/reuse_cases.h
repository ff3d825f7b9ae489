// SPDX-License-Identifier: Apache-2.0
// What tests of reuse methods run over, and count.
#pragma once

#include "engine/engine.h"
#include "tests/support/tiny_model.h"

namespace baton::test {

inline const TinyOptions kModels[] = {
    {},
    {.dtype = DType::f32, .kv_dtype = DType::f32},
    {.heads = 8, .kv_heads = 1, .head_dim = 8, .window = 21, .qk_norm = true, .bias = true, .kv_dtype = DType::f32},
    quantized_tiny(BlockType::q5_0),
    quantized_tiny(BlockType::q4_k),
    {.heads = 4, .kv_heads = 1, .head_dim = 32, .window = 21, .qk_norm = true, .gemma = true},
    {.nope = true},
    {.experts = 5},
};

/// Entries (tokens x layers) of the whole prompt.
inline std::int64_t reused(const GenerationResult& result) {
  std::int64_t sum = 0;
  for (const PartUse& use : result.uses) sum += use.kv_reused;
  return sum;
}

}  // namespace baton::test
