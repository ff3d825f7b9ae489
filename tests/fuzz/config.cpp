// SPDX-License-Identifier: Apache-2.0
// A config.json from the network: it is refused, or what it says is sound enough to compute with.
#include "engine/model/config.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "engine/model/rope.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  baton::ModelConfig config;
  try {
    config = baton::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const baton::ModelError&) {
    return 0;
  }
  require(config.layers > 0 && config.width > 0 && config.ffn_width > 0 && config.vocabulary > 0 && config.context > 0);
  require(config.kv_heads > 0 && config.heads % config.kv_heads == 0);
  require(config.head_dim > 0 && config.head_dim % 2 == 0);
  require(config.norm_eps >= 0.0f && std::isfinite(config.norm_eps));
  require(config.window.size() == static_cast<std::size_t>(config.layers));
  for (const std::int32_t window : config.window) require(window >= 0);
  for (const std::int32_t token : config.eos_tokens) require(token >= 0 && token < config.vocabulary);

  const baton::LayerRopes ropes(config);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) require(ropes.of(layer) < ropes.distinct().size());
  for (const baton::Rope& rope : ropes.distinct()) {
    require(rope.inverse_frequencies().size() == static_cast<std::size_t>(config.head_dim) / 2);
    for (const double frequency : rope.inverse_frequencies()) require(frequency >= 0.0 && frequency <= 1.0);
    require(rope.attention_factor() > 0.0 && std::isfinite(rope.attention_factor()));
  }
  return 0;
}
