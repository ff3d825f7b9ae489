// SPDX-License-Identifier: Apache-2.0
// Checkpoints made by tests: bytes of safetensors files.
#pragma once

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace baton::test {

/// Length, header, data: nothing is checked, so that broken files can be made too.
inline std::string safetensors(const std::string& header, const std::string& data) {
  std::string file;
  for (int byte = 0; byte < 8; ++byte) file.push_back(static_cast<char>(header.size() >> (8 * byte)));
  return file + header + data;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Collects tensors and writes them as a sound file.
class TensorFile {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    add(name, "F32", shape, values);
  }
  template <class Element>
  void add(const std::string& name, const std::string& type, const std::vector<std::int64_t>& shape,
           const std::vector<Element>& values) {
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element));
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
  }
  std::string bytes() const {
    std::string header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return safetensors(header, data_);
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

/// What the function throws, as text; empty when it throws nothing.
template <class Error, class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace baton::test
