// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/between_models.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/model/model.h"

namespace baton {

KvFormat kv_format_of(const Model& model) {
  const ModelConfig& config = model.config;
  return {.tokenizer = model.tokenizer->identity(),
          .shapes = model.kv_layout().shapes,
          .width = config.width,
          .qk_norm = config.qk_norm};
}

std::uint64_t hash_of_bytes(std::span<const std::byte> bytes) {
  const std::size_t whole = bytes.size() / sizeof(TokenId) * sizeof(TokenId);
  const std::uint64_t hash = hash_bytes(bytes.data(), whole, 0x9e3779b97f4a7c15u);
  TokenId rest = 0;
  if (whole < bytes.size()) std::memcpy(&rest, bytes.data() + whole, bytes.size() - whole);
  return hash_bytes(&rest, sizeof(rest), hash ^ bytes.size());
}

std::string kv_key_of(const Model& model) {
  std::uint64_t tokenizer = 0;
  std::error_code missing;
  const std::filesystem::path file = model.path / "tokenizer.json";
  if (!model.path.empty() && std::filesystem::is_regular_file(file, missing)) {
    const InputFile input(file);
    std::vector<std::byte> bytes(static_cast<std::size_t>(input.size()));
    input.read(0, bytes);
    tokenizer = hash_of_bytes(bytes);
  } else if (model.tokenizer) {  // of a GGUF file
    tokenizer = model.tokenizer->identity();
  }
  return fmt::format("{}-{:016x}-{}", model.fingerprint, tokenizer, name_of(model.options.kv_dtype));
}

std::string kv_difference(const KvFormat& author, const KvFormat& reader) {
  if (author.tokenizer != reader.tokenizer) return "their tokenizers differ";
  const auto differ = [](const char* what, std::int64_t one, std::int64_t other) {
    return fmt::format("they differ in {}: {} and {}", what, one, other);
  };
  if (author.shapes.size() != reader.shapes.size())
    return differ("layers", static_cast<std::int64_t>(author.shapes.size()),
                  static_cast<std::int64_t>(reader.shapes.size()));
  if (author.width != reader.width) return differ("hidden width", author.width, reader.width);
  for (std::size_t layer = 0; layer < author.shapes.size(); ++layer) {
    const KvShape &one = author.shapes[layer], &other = reader.shapes[layer];
    if (one.kv_heads != other.kv_heads) return differ("KV heads", one.kv_heads, other.kv_heads);
    if (one.head_dim != other.head_dim) return differ("head width", one.head_dim, other.head_dim);
  }
  if (author.qk_norm != reader.qk_norm) return "only one of them normalises its keys";
  if (author.shapes != reader.shapes)
    return fmt::format("they differ in the KV type: {} and {}", name_of(author.shapes.front().dtype),
                       name_of(reader.shapes.front().dtype));
  return {};
}

std::string kv_difference(const Model& author, const Model& reader) {
  return kv_difference(kv_format_of(author), kv_format_of(reader));
}

}  // namespace baton
