// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/between_models.h"

#include <fmt/format.h>

namespace baton {

std::string kv_difference(const Model& author, const Model& reader) {
  if (author.tokenizer->identity() != reader.tokenizer->identity()) return "their tokenizers differ";
  const ModelConfig &a = author.config, &b = reader.config;
  const auto differ = [](const char* what, std::int64_t one, std::int64_t other) {
    return fmt::format("{} {} against {}", one, what, other);
  };
  if (a.layers != b.layers) return differ("layers", a.layers, b.layers);
  if (a.width != b.width) return differ("wide", a.width, b.width);
  if (a.kv_heads != b.kv_heads) return differ("KV heads", a.kv_heads, b.kv_heads);
  if (a.head_dim != b.head_dim) return differ("wide heads", a.head_dim, b.head_dim);
  if (a.qk_norm != b.qk_norm) return "one of them normalises its keys";
  if (author.options.kv_dtype != reader.options.kv_dtype) {
    return fmt::format("KV in {} against {}", name_of(author.options.kv_dtype), name_of(reader.options.kv_dtype));
  }
  return {};
}

}  // namespace baton
