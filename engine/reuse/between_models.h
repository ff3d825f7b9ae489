// SPDX-License-Identifier: Apache-2.0
// The properties that two models must share for one to read the other's KV (Method::models).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.h"

namespace baton {

struct Model;

/// The properties that decide whether another model's KV can be read: vocabulary and shapes. The weights may differ,
/// and so may the encoding of positions, since KV is handed over before RoPE.
struct KvFormat {
  std::uint64_t tokenizer = 0;  // Tokenizer::identity
  std::vector<KvShape> shapes;  // [L]
  std::int32_t width = 0;       // C, of hidden states
  bool qk_norm = false;         // keys are normalised
  std::int32_t layers() const { return static_cast<std::int32_t>(shapes.size()); }
};

KvFormat kv_format_of(const Model& model);
/// Returns a key of the model's KV, made from its weights, its tokenizer and the type of the cache: KV that was written
/// into a file can be read again by a model of the same key.
std::string kv_key_of(const Model& model);
/// The hash of a file's bytes, as kv_key_of and files of KV have it.
std::uint64_t hash_of_bytes(std::span<const std::byte> bytes);

/// Returns why `reader` cannot read KV that `author` made: the first difference, or empty.
std::string kv_difference(const KvFormat& author, const KvFormat& reader);
std::string kv_difference(const Model& author, const Model& reader);

}  // namespace baton
