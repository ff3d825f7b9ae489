// SPDX-License-Identifier: Apache-2.0
// What tests of reuse methods run over, and count.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/registry.h"
#include "engine/reuse/lab/lab_methods.h"
#include "tests/support/tiny_model.h"

namespace baton::test {

inline const TinyOptions kModels[] = {
    {},
    {.dtype = DType::f32, .kv_dtype = DType::f32},
    {.heads = 8, .kv_heads = 1, .head_dim = 8, .window = 21, .qk_norm = true, .bias = true, .kv_dtype = DType::f32},
    quantized_tiny(BlockType::q5_0),
    quantized_tiny(BlockType::q4_k),
    {.heads = 4, .kv_heads = 1, .head_dim = 32, .window = 21, .qk_norm = true, .gemma = true},
    {.heads = 4, .kv_heads = 2, .head_dim = 24, .window = 21, .olmo = true, .mixed = true},
    {.nope = true},
    {.experts = 5},
    {.heads = 4, .window = 21, .qk_norm = true, .gemma4 = true},
    {.heads = 4, .window = 21, .qk_norm = true, .experts = 4, .gemma4 = true},
    {.heads = 4, .window = 21, .qk_norm = true, .gemma3n = true},
};

/// The registered methods that hand texts over by themselves: nothing has been learned, measured or decided before.
inline std::vector<std::string> plain_methods() {
  register_lab_methods();
  std::vector<std::string> names;
  for (const Method* method : methods()) {
    if (hands_over(*method) && !computes_ahead(*method) && !learns(*method) && !needs_group(*method))
      names.emplace_back(method->name);
  }
  return names;
}

/// Those of them that choose tokens, with the options to recompute all of every segment.
inline std::vector<ReuseOptions> recomputing_all(const ReuseOptions& like) {
  std::vector<ReuseOptions> all;
  for (const std::string& name : plain_methods()) {
    ReuseOptions reuse = like;
    reuse.method = find_method(name);
    if (!chooses_tokens(*reuse.method)) continue;
    reuse.method->recompute(reuse, 1.0, std::numeric_limits<std::int32_t>::max());
    all.push_back(std::move(reuse));
  }
  return all;
}

/// Entries (tokens x layers) of the whole prompt.
inline std::int64_t reused(const GenerationResult& result) {
  std::int64_t sum = 0;
  for (const PartUse& use : result.uses) sum += use.kv_reused;
  return sum;
}

}  // namespace baton::test
