// SPDX-License-Identifier: Apache-2.0
// Where weights come from: a folder of safetensors files or a GGUF file. Names are those of Hugging Face's checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/tensor/block_types.h"

namespace baton {

/// A weight matrix [rows, cols] as a file holds it: rows of blocks, aligned for every element type.
struct StoredWeight {
  std::shared_ptr<const std::byte[]> data;  // nullptr: it is still in the file; see read and whole
  BlockType type = BlockType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  /// D, where the D outputs of each head are stored in the order of interleaved RoPE, whose pairs are (2 j, 2 j + 1);
  /// 0: outputs are stored in order. The engine's pairs are (j, j + D/2). Outputs are a matrix's rows, a bias's
  /// columns.
  std::int32_t interleaved = 0;

  /// Where `data` is nullptr: fills `out` with rows from `first` on, as they are stored. Throws ModelError when they
  /// cannot be read.
  std::function<void(std::span<std::byte> out, std::int64_t first)> read = nullptr;

  /// The same weight with all of its data in memory.
  StoredWeight whole() const {
    if (data != nullptr) return *this;
    const auto bytes = static_cast<std::size_t>(rows * row_bytes(type, cols));
    const auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
    read({memory.get(), bytes}, 0);
    return {memory, type, rows, cols, interleaved};
  }

  /// Where an output is stored.
  std::int64_t place(std::int64_t output) const {
    if (interleaved == 0) return output;
    const std::int64_t head = output / interleaved * interleaved, at = output % interleaved, half = interleaved / 2;
    return head + (at < half ? 2 * at : 2 * (at - half) + 1);
  }
  /// The blocks of row `row` of the matrix, whose data is in memory.
  std::span<const std::byte> row(std::int64_t row) const {
    const std::int64_t bytes = row_bytes(type, cols);
    return {data.get() + place(row) * bytes, static_cast<std::size_t>(bytes)};
  }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual bool contains(const std::string& name) const = 0;
  /// The tensor as a matrix; a vector is [1, n]. Throws ModelError when it is missing, of another shape, of a type that
  /// the engine does not load, or cannot be read. The source has to outlive it.
  virtual StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const = 0;
  virtual std::size_t total_bytes() const = 0;
};

}  // namespace baton
