// SPDX-License-Identifier: Apache-2.0
// The values of weights that a safetensors checkpoint holds in 8 or 4 bits, with scales in tensors of their own
// (docs/decisions/numerics.md). Pure functions over tensors whose shapes were checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/safetensors.h"
#include "engine/model/weights.h"

namespace baton {

/// The value of an 8-bit float with four exponent bits, three of mantissa and no infinities (E4M3FN); 0x7f and 0xff are
/// NaN.
float e4m3_to_f32(std::uint8_t bits);

/// Bytes of E4M3 [rows, cols] and the scales [ceil(rows / block_rows), ceil(cols / block_cols)] of their blocks.
struct Fp8Matrix {
  std::span<const std::byte> bytes;
  std::int64_t rows = 0, cols = 0;
  std::span<const float> scales;
  std::int64_t block_rows = 1, block_cols = 1;
};

/// f32 values: each is the byte's value times its scale, rounded once.
StoredWeight dequantized(const Fp8Matrix& matrix);

/// Integers of 4 bits: value = (code - zero of the input's group) * scale of that group, each for one output.
struct Int4Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::uint8_t> codes;  // [rows, cols]
  std::vector<std::int32_t> group;  // [cols], of each input
  std::vector<std::uint8_t> zeros;  // [groups, rows], 0 to 15
  std::vector<float> scales;        // [groups, rows], finite
};

/// Codes of GPTQ, from words [cols / 8, rows]: bits [4 j, 4 j + 4) of word [i, n] are input 8 i + j of output n.
std::vector<std::uint8_t> gptq_codes(std::span<const std::byte> words, std::int64_t rows, std::int64_t cols);
/// Zeros of GPTQ, from words [groups, rows / 8]: bits [4 j, 4 j + 4) of word [g, i] are output 8 i + j. `less_one`: one
/// was subtracted from each of the eight, as one subtraction from the word: a zero of 0 borrows from the next.
std::vector<std::uint8_t> gptq_zeros(std::span<const std::byte> words, bool less_one);

/// Codes of AWQ, from words [cols, rows / 8]. The outputs of a word lie in the order 0, 2, 4, 6, 1, 3, 5, 7.
std::vector<std::uint8_t> awq_codes(std::span<const std::byte> words, std::int64_t rows, std::int64_t cols);
/// Zeros of AWQ, from words [groups, rows / 8], in the same order.
std::vector<std::uint8_t> awq_zeros(std::span<const std::byte> words);

/// The same values in blocks of 32 inputs where those hold them exactly: Q4_0 where all zeros are 8, else Q5_0. They do
/// where the inputs of every block have one group, and scales are f16 numbers. Other matrices become f32.
StoredWeight stored(const Int4Matrix& matrix);

/// 4-bit floats with two exponent bits and one of mantissa (E2M1), and for each 32 inputs a power of two, biased by
/// 127. Byte i of a block has input 2 i in its low half, 2 i + 1 in its high half.
struct Mxfp4Matrix {
  std::span<const std::byte> blocks;  // [rows, cols / 32, 16]
  std::span<const std::byte> scales;  // [rows, cols / 32]
  std::int64_t rows = 0, cols = 0;
};

/// The same blocks in the order of GGUF files.
StoredWeight stored(const Mxfp4Matrix& matrix);

// The weights of a safetensors checkpoint, of which some are quantised as its config.json says.

/// Which tensors are quantised is seen from the tensors: a "NAME.weight" of type F8_E4M3, or "NAME.qweight" in its
/// place. Every shape, type, scale and index is checked; errors are ModelErrors with the tensor's name, what was found
/// and what was expected. Safe from any thread.
class CheckpointWeights final : public WeightSource {
 public:
  /// `files` must outlive it. With `stacked_experts` (gpt-oss), "experts.3.NAME.weight" and "experts.3.NAME.bias" are
  /// parts of tensors of all experts: of "experts.NAME" [E, inputs, outputs] or "experts.NAME_blocks" and
  /// "experts.NAME_scales" (MXFP4), and of "experts.NAME_bias".
  CheckpointWeights(const SafetensorsFolder& files, const QuantizationConfig& config, bool stacked_experts = false)
      : files_(files), config_(config), stacked_experts_(stacked_experts) {}

  bool contains(const std::string& name) const override;
  /// FP8 becomes f32; integers of 4 bits become blocks of Q4_0 or Q5_0 where those hold the same values, else f32.
  StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const override;
  /// Of what weight() returns, about.
  std::size_t total_bytes() const override;

 private:
  bool holds(const std::string& name) const;
  std::string in_file(const std::string& name) const;
  StoredWeight fp8(const std::string& name, std::int64_t rows, std::int64_t cols) const;
  StoredWeight int4(const std::string& stem, std::int64_t rows, std::int64_t cols) const;
  StoredWeight expert(const std::string& stack, std::int64_t part, std::int64_t rows, std::int64_t cols) const;
  StoredWeight mxfp4(const std::string& stack, std::int64_t part, std::int64_t rows, std::int64_t cols) const;
  std::string tensor_of(const std::string& stack) const;
  void check_part(const std::string& name, std::int64_t part, const std::vector<std::int64_t>& shape) const;
  std::vector<float> scales(const std::string& name) const;
  std::vector<std::int32_t> groups(const std::string& stem, std::int64_t cols, std::int64_t count) const;
  std::vector<std::byte> bytes(const std::string& name, const char* type, const std::vector<std::int64_t>& shape) const;

  const SafetensorsFolder& files_;
  QuantizationConfig config_;
  bool stacked_experts_;
};

}  // namespace baton
