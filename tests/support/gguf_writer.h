// SPDX-License-Identifier: Apache-2.0
// GGUF files made by tests. Nothing is checked, so that broken files can be made too.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/gguf.h"

namespace baton::test {

template <class Value>
std::string raw(Value value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline std::string gguf_text(std::string_view text) {
  return raw(static_cast<std::uint64_t>(text.size())) + std::string(text);
}

/// Collects metadata and tensors, and writes them as a sound file.
class GgufWriter {
 public:
  /// A pair as bytes: the value of type `type`, encoded.
  void add(std::string_view key, GgufType type, const std::string& value) {
    pairs_.push_back(gguf_text(key) + raw(static_cast<std::uint32_t>(type)) + value);
  }
  void remove_key(std::string_view key) {
    std::erase_if(pairs_, [&](const std::string& pair) { return pair.starts_with(gguf_text(key)); });
  }
  void number(std::string_view key, std::uint32_t value) { add(key, GgufType::u32, raw(value)); }
  void real(std::string_view key, float value) { add(key, GgufType::f32, raw(value)); }
  void flag(std::string_view key, bool value) { add(key, GgufType::boolean, raw(static_cast<std::uint8_t>(value))); }
  void text(std::string_view key, std::string_view value) { add(key, GgufType::text, gguf_text(value)); }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = array_head(GgufType::text, values.size());
    for (const std::string& value : values) bytes += gguf_text(value);
    add(key, GgufType::array, bytes);
  }
  void integers(std::string_view key, const std::vector<std::int32_t>& values) {
    std::string bytes = array_head(GgufType::i32, values.size());
    for (const std::int32_t value : values) bytes += raw(value);
    add(key, GgufType::array, bytes);
  }
  void flags(std::string_view key, const std::vector<bool>& values) {
    std::string bytes = array_head(GgufType::boolean, values.size());
    for (const bool value : values) bytes.push_back(value ? '\1' : '\0');
    add(key, GgufType::array, bytes);
  }
  void reals(std::string_view key, const std::vector<float>& values) {
    std::string bytes = array_head(GgufType::f32, values.size());
    for (const float value : values) bytes += raw(value);
    add(key, GgufType::array, bytes);
  }

  /// `shape` has the rows first.
  void tensor(std::string_view name, const std::vector<std::int64_t>& shape, BlockType type, std::string bytes) {
    std::string entry = gguf_text(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) entry += raw(*extent);
    tensors_.push_back({std::string(name), entry + raw(format_of(type).id), std::move(bytes)});
  }
  void remove(std::string_view name) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  }
  void replace(std::string_view name, const std::vector<std::int64_t>& shape, BlockType type, std::string bytes) {
    remove(name);
    tensor(name, shape, type, std::move(bytes));
  }

  std::string bytes(std::uint32_t version = 3) const {
    std::string file = "GGUF" + raw(version) + raw(static_cast<std::uint64_t>(tensors_.size())) +
                       raw(static_cast<std::uint64_t>(pairs_.size()));
    for (const std::string& pair : pairs_) file += pair;
    std::string data;
    for (const Tensor& tensor : tensors_) {
      file += tensor.entry + raw(static_cast<std::uint64_t>(data.size()));
      data += tensor.bytes;
      pad(data);
    }
    pad(file);
    return file + data;
  }

  static std::string array_head(GgufType element, std::uint64_t count) {
    return raw(static_cast<std::uint32_t>(element)) + raw(count);
  }

 private:
  static void pad(std::string& bytes) { bytes.resize((bytes.size() + 31) / 32 * 32, '\0'); }

  struct Tensor {
    std::string name, entry, bytes;  // the entry of the table without the offset
  };
  std::vector<std::string> pairs_;
  std::vector<Tensor> tensors_;
};

}  // namespace baton::test
