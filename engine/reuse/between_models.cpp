// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/between_models.h"

#include <fmt/format.h>

#include "engine/model/model.h"

namespace baton {

KvFormat kv_format_of(const Model& model) {
  const ModelConfig& config = model.config;
  return {.tokenizer = model.tokenizer->identity(),
          .layers = config.layers,
          .width = config.width,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .qk_norm = config.qk_norm,
          .dtype = model.options.kv_dtype};
}

std::string kv_difference(const KvFormat& author, const KvFormat& reader) {
  if (author.tokenizer != reader.tokenizer) return "their tokenizers differ";
  const auto differ = [](const char* what, std::int64_t one, std::int64_t other) {
    return fmt::format("they differ in {}: {} and {}", what, one, other);
  };
  if (author.layers != reader.layers) return differ("layers", author.layers, reader.layers);
  if (author.width != reader.width) return differ("hidden width", author.width, reader.width);
  if (author.kv_heads != reader.kv_heads) return differ("KV heads", author.kv_heads, reader.kv_heads);
  if (author.head_dim != reader.head_dim) return differ("head width", author.head_dim, reader.head_dim);
  if (author.qk_norm != reader.qk_norm) return "only one of them normalises its keys";
  if (author.dtype != reader.dtype)
    return fmt::format("they differ in the KV type: {} and {}", name_of(author.dtype), name_of(reader.dtype));
  return {};
}

std::string kv_difference(const Model& author, const Model& reader) {
  return kv_difference(kv_format_of(author), kv_format_of(reader));
}

}  // namespace baton
