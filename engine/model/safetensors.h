// SPDX-License-Identifier: Apache-2.0
// Safetensors files: one file or a sharded set with its index. Nothing is trusted: every offset, shape
// and type of a header is checked against the file before a byte is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/weights.h"
#include "engine/tensor/tensor.h"

namespace baton {

struct TensorInfo {
  std::string type;            // as the file writes it: "BF16", "I64"
  std::optional<DType> dtype;  // empty: a type that the engine cannot compute with
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // bytes from the start of the data part
  std::size_t end = 0;
};

/// Bytes of a file before its tensors' data, as its first bytes say; `file_bytes` are all. Throws ModelError:
/// truncated.
std::uint64_t safetensors_data_offset(std::span<const std::byte> first, std::uint64_t file_bytes,
                                      const std::string& origin);

/// Parses and checks a header. `head` holds the file's first safetensors_data_offset() bytes or more, `origin` names
/// the file in errors. Throws ModelError: truncated, lying about sizes, duplicate names, tensors that overlap, leave
/// holes or reach outside. A type that the engine cannot use is no error until the tensor is asked for: files carry
/// unused integers.
std::map<std::string, TensorInfo> parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_bytes,
                                                           const std::string& origin);

/// The block type of single values.
BlockType block_type_of(DType type);

/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// All tensors of a model folder (model.safetensors, or the shards of model.safetensors.index.json). Safe
/// from any thread.
class SafetensorsFolder final : public WeightSource {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  ~SafetensorsFolder() override;
  SafetensorsFolder(SafetensorsFolder&&) noexcept;
  SafetensorsFolder& operator=(SafetensorsFolder&&) noexcept;

  bool contains(const std::string& name) const override;
  /// The tensor as a matrix [shape0, rest]; a vector is [1, n]. Of the types F32, BF16 and F16.
  StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const override;
  /// nullptr: there is none of that name.
  const TensorInfo* find(const std::string& name) const;
  /// The bytes of a tensor as the file holds them, aligned for every element type. Throws ModelError when it is missing
  /// or cannot be read.
  std::shared_ptr<const std::byte[]> read(const std::string& name) const;
  /// As read(), of one element of the first axis of a tensor that has `part` + 1 or more of them.
  std::shared_ptr<const std::byte[]> read(const std::string& name, std::int64_t part) const;
  /// The file and the tensor, as errors begin.
  std::string place(const std::string& name) const;
  std::vector<std::string> names() const;
  /// Throws ModelError when it is missing.
  std::vector<std::int64_t> shape(const std::string& name) const;
  std::size_t total_bytes() const override;
  /// Of all tensors of a type, as files write it.
  std::size_t bytes_of_type(std::string_view type) const;
  /// fingerprint_of config.json and the files.
  std::string fingerprint(std::string_view config_json, const std::stop_token& stop = {}) const;

 private:
  struct File;
  const File* file_of(const std::string& name) const;  // nullptr: there is no such tensor
  const File& owner(const std::string& name) const;    // throws ModelError
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace baton
