// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "engine/base/errors.h"

namespace baton {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::string_view kWeight = "weight";  // how the names of matrices end
constexpr std::int64_t kPerWord = 8;            // integers of 4 bits

bool is_int4(WeightFormat format) { return format == WeightFormat::gptq || format == WeightFormat::awq; }

/// "layer.q_proj." of "layer.q_proj.weight"; empty for other names.
std::string stem_of(const std::string& name) {
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
}

std::int64_t parts_of(std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; }

std::int64_t elements_of(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

}  // namespace

bool CheckpointWeights::contains(const std::string& name) const {
  return files_.contains(name) ||
         (is_int4(config_.format) && !stem_of(name).empty() && files_.contains(stem_of(name) + "qweight"));
}

StoredWeight CheckpointWeights::weight(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const TensorInfo* info = files_.find(name);
  if (info == nullptr && contains(name)) return int4(stem_of(name), rows, cols);
  if (info != nullptr && info->type == "F8_E4M3" && config_.format == WeightFormat::fp8) return fp8(name, rows, cols);
  return files_.weight(name, rows, cols);
}

std::size_t CheckpointWeights::total_bytes() const {
  return files_.total_bytes() + (sizeof(float) - 1) * files_.bytes_of_type("F8_E4M3");
}

/// The data of a tensor that has to be of that type and shape.
std::vector<std::byte> CheckpointWeights::bytes(const std::string& name, const char* type, const Shape& shape) const {
  const std::string place = files_.place(name);  // throws where it is missing
  const TensorInfo& info = *files_.find(name);
  if (info.type != type) throw ModelError(fmt::format("{} is of type {}, expected {}", place, info.type, type));
  if (info.shape != shape)
    throw ModelError(fmt::format("{} has shape {}, expected {}", place, shape_text(info.shape), shape_text(shape)));
  const auto data = files_.read(name);
  return {data.get(), data.get() + (info.end - info.begin)};
}

/// All values of a tensor of floats of any shape; each has to be finite.
std::vector<float> CheckpointWeights::scales(const std::string& name) const {
  const std::string place = files_.place(name);
  const TensorInfo& info = *files_.find(name);
  const StoredWeight stored =
      files_.weight(name, info.shape.size() > 1 ? info.shape.front() : 1,
                    elements_of(info.shape.size() > 1 ? Shape(info.shape.begin() + 1, info.shape.end()) : info.shape));
  std::vector<float> values(static_cast<std::size_t>(elements_of(info.shape)));
  dequantize(values, {stored.data.get(), info.end - info.begin}, stored.type);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw ModelError(fmt::format("{} holds {} at place {}, expected finite scales", place, values[i], i));
  return values;
}

StoredWeight CheckpointWeights::fp8(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const std::vector<std::byte> data = bytes(name, "F8_E4M3", {rows, cols});
  const std::string inverse = stem_of(name) + "weight_scale_inv", plain = stem_of(name) + "weight_scale";
  if (stem_of(name).empty() || (!files_.contains(inverse) && !files_.contains(plain)))
    throw ModelError(fmt::format("{} is of type F8_E4M3, but has no scales: expected a tensor \"{}\" or \"{}\"",
                                 files_.place(name), plain, inverse));
  const std::string scale_name = files_.contains(inverse) ? inverse : plain;
  const Shape& shape = files_.find(scale_name)->shape;
  Fp8Matrix matrix{.bytes = data, .rows = rows, .cols = cols, .scales = {}, .block_rows = rows, .block_cols = cols};
  std::string expected = fmt::format("one scale, [{0}] or [{0}, 1]", rows);
  bool fits = elements_of(shape) == 1;
  if (config_.block_rows > 0) {
    matrix.block_rows = config_.block_rows;
    matrix.block_cols = config_.block_cols;
    const Shape grid = {parts_of(rows, matrix.block_rows), parts_of(cols, matrix.block_cols)};
    fits = shape == grid;
    expected = fmt::format("{}, as blocks are of {} by {}", shape_text(grid), matrix.block_rows, matrix.block_cols);
  } else if (!fits) {
    matrix.block_rows = 1;
    fits = shape == Shape{rows} || shape == Shape{rows, 1};
  }
  if (!fits)
    throw ModelError(
        fmt::format("{} has shape {}, expected {}", files_.place(scale_name), shape_text(shape), expected));
  const std::vector<float> values = scales(scale_name);
  matrix.scales = values;
  return dequantized(matrix);
}

/// The group of each of `cols` inputs, of `count` groups.
std::vector<std::int32_t> CheckpointWeights::groups(const std::string& stem, std::int64_t cols,
                                                    std::int64_t count) const {
  const std::string name = stem + "g_idx";
  std::vector<std::int32_t> groups(static_cast<std::size_t>(cols));
  if (config_.format == WeightFormat::awq || (!config_.ordered_by_activation && !files_.contains(name))) {
    for (std::int64_t c = 0; c < cols; ++c)
      groups[static_cast<std::size_t>(c)] =
          config_.group_size == 0 ? 0 : static_cast<std::int32_t>(c / config_.group_size);
    return groups;
  }
  std::memcpy(groups.data(), bytes(name, "I32", {cols}).data(), groups.size() * sizeof(std::int32_t));
  for (std::size_t c = 0; c < groups.size(); ++c)
    if (groups[c] < 0 || groups[c] >= count)
      throw ModelError(fmt::format("{} holds {} at place {}, expected a group from 0 to {}", files_.place(name),
                                   groups[c], c, count - 1));
  return groups;
}

StoredWeight CheckpointWeights::int4(const std::string& stem, std::int64_t rows, std::int64_t cols) const {
  const bool gptq = config_.format == WeightFormat::gptq;
  if (rows % kPerWord != 0 || (gptq && cols % kPerWord != 0))
    throw ModelError(fmt::format("{} stands for a matrix [{}, {}], expected multiples of {}",
                                 files_.place(stem + "qweight"), rows, cols, kPerWord));
  const std::int64_t count = config_.group_size == 0 ? 1 : parts_of(cols, config_.group_size);
  const std::string scale_name = stem + "scales", zero_name = stem + "qzeros";
  const auto words = bytes(stem + "qweight", "I32", gptq ? Shape{cols / kPerWord, rows} : Shape{cols, rows / kPerWord});
  const auto zeros = bytes(zero_name, "I32", {count, rows / kPerWord});
  const std::string place = files_.place(scale_name);
  if (const Shape& shape = files_.find(scale_name)->shape; shape != Shape{count, rows})
    throw ModelError(fmt::format("{} has shape {}, expected {}, as groups are of {}", place, shape_text(shape),
                                 shape_text({count, rows}), config_.group_size == 0 ? cols : config_.group_size));
  Int4Matrix matrix{.rows = rows,
                    .cols = cols,
                    .codes = gptq ? gptq_codes(words, rows, cols) : awq_codes(words, rows, cols),
                    .group = groups(stem, cols, count),
                    .zeros = gptq ? gptq_zeros(zeros, config_.zeros_less_one) : awq_zeros(zeros),
                    .scales = scales(scale_name)};
  return stored(matrix);
}

namespace {

constexpr std::int64_t kBlock = 32;                                 // inputs of a block of Q4_0 and Q5_0
constexpr std::uint8_t kMiddle = 8;                                 // the zero of Q4_0
constexpr std::array<int, 8> kAwqPlace = {0, 4, 1, 5, 2, 6, 3, 7};  // of output j in a word

std::uint32_t word_at(std::span<const std::byte> words, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, words.data() + index * 4, sizeof(word));
  return word;
}

std::uint8_t integer_at(std::uint32_t word, int place) { return static_cast<std::uint8_t>(word >> (4 * place) & 15); }

template <class Value>
StoredWeight allocated(BlockType type, std::int64_t rows, std::int64_t cols, Value*& out) {
  const auto data = std::make_shared<std::byte[]>(static_cast<std::size_t>(rows * row_bytes(type, cols)));
  out = reinterpret_cast<Value*>(data.get());
  return {data, type, rows, cols};
}

/// The bits of an f16 of that value; empty: there is none.
std::optional<std::uint16_t> exact_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::abs(value);
  if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24
    const float steps = magnitude * 0x1p24f;
    if (steps != std::floor(steps)) return std::nullopt;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(steps));
  }
  if (magnitude > 65504.0f || (bits & 0x1fffu) != 0) return std::nullopt;
  return static_cast<std::uint16_t>(sign | ((bits & 0x7fffffffu) - (112u << 23)) >> 13);
}

/// [groups, rows]; empty: a scale is no f16 number.
std::optional<std::vector<std::uint16_t>> f16_scales(const Int4Matrix& matrix) {
  std::vector<std::uint16_t> scales;
  for (const float scale : matrix.scales) {
    const auto bits = exact_f16(scale);
    if (!bits) return std::nullopt;
    scales.push_back(*bits);
  }
  return scales;
}

bool blocks_have_one_group(const Int4Matrix& matrix) {
  if (matrix.cols % kBlock != 0) return false;
  for (std::int64_t c = 0; c < matrix.cols; ++c)
    if (matrix.group[c] != matrix.group[c / kBlock * kBlock]) return false;
  return true;
}

void write(BlockQ4_0& block, std::uint16_t scale, const std::uint8_t* codes, std::uint8_t /*zero*/) {
  block.d = scale;
  for (int i = 0; i < 16; ++i) block.q[i] = static_cast<std::uint8_t>(codes[i] | codes[i + 16] << 4);
}

/// Codes of Q5_0 count from 16: code - zero is between -15 and 15.
void write(BlockQ5_0& block, std::uint16_t scale, const std::uint8_t* codes, std::uint8_t zero) {
  block.d = scale;
  std::uint32_t high = 0;
  std::array<std::uint8_t, kBlock> moved{};
  for (std::size_t i = 0; i < moved.size(); ++i) {
    moved[i] = static_cast<std::uint8_t>(codes[i] + 16 - zero);
    high |= static_cast<std::uint32_t>(moved[i] >> 4) << i;
  }
  std::memcpy(block.high, &high, sizeof(high));
  for (std::size_t i = 0; i < 16; ++i)
    block.q[i] = static_cast<std::uint8_t>((moved[i] & 15) | (moved[i + 16] & 15) << 4);
}

template <class Block>
StoredWeight in_blocks(const Int4Matrix& matrix, BlockType type, const std::vector<std::uint16_t>& scales) {
  Block* out = nullptr;
  StoredWeight weight = allocated(type, matrix.rows, matrix.cols, out);
  for (std::int64_t n = 0; n < matrix.rows; ++n) {
    for (std::int64_t c = 0; c < matrix.cols; c += kBlock, ++out) {
      const std::int64_t at = matrix.group[c] * matrix.rows + n;
      write(*out, scales[at], matrix.codes.data() + n * matrix.cols + c, matrix.zeros[at]);
    }
  }
  return weight;
}

StoredWeight in_f32(const Int4Matrix& matrix) {
  float* out = nullptr;
  StoredWeight weight = allocated(BlockType::f32, matrix.rows, matrix.cols, out);
  for (std::int64_t n = 0; n < matrix.rows; ++n) {
    for (std::int64_t c = 0; c < matrix.cols; ++c, ++out) {
      const std::int64_t at = matrix.group[c] * matrix.rows + n;
      *out = static_cast<float>(matrix.codes[n * matrix.cols + c] - matrix.zeros[at]) * matrix.scales[at];
    }
  }
  return weight;
}

}  // namespace

float e4m3_to_f32(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

StoredWeight dequantized(const Fp8Matrix& matrix) {
  std::array<float, 256> values;
  for (std::size_t bits = 0; bits < values.size(); ++bits) values[bits] = e4m3_to_f32(static_cast<std::uint8_t>(bits));
  const std::int64_t scale_cols = (matrix.cols + matrix.block_cols - 1) / matrix.block_cols;
  float* out = nullptr;
  StoredWeight weight = allocated(BlockType::f32, matrix.rows, matrix.cols, out);
  for (std::int64_t n = 0; n < matrix.rows; ++n) {
    const std::byte* row = matrix.bytes.data() + n * matrix.cols;
    const float* scales = matrix.scales.data() + n / matrix.block_rows * scale_cols;
    for (std::int64_t begin = 0; begin < matrix.cols; begin += matrix.block_cols, ++scales) {
      const std::int64_t end = std::min(begin + matrix.block_cols, matrix.cols);
      for (std::int64_t c = begin; c < end; ++c) *out++ = values[std::to_integer<std::size_t>(row[c])] * *scales;
    }
  }
  return weight;
}

std::vector<std::uint8_t> gptq_codes(std::span<const std::byte> words, std::int64_t rows, std::int64_t cols) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < cols / kPerWord; ++i) {
    for (std::int64_t n = 0; n < rows; ++n) {
      const std::uint32_t word = word_at(words, i * rows + n);
      for (int j = 0; j < kPerWord; ++j) codes[n * cols + i * kPerWord + j] = integer_at(word, j);
    }
  }
  return codes;
}

std::vector<std::uint8_t> gptq_zeros(std::span<const std::byte> words, bool less_one) {
  std::vector<std::uint8_t> zeros;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(words.size() / 4); ++i) {
    const std::uint32_t word = word_at(words, i) + (less_one ? 0x11111111u : 0);
    for (int j = 0; j < kPerWord; ++j) zeros.push_back(integer_at(word, j));
  }
  return zeros;
}

std::vector<std::uint8_t> awq_codes(std::span<const std::byte> words, std::int64_t rows, std::int64_t cols) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t i = 0; i < rows / kPerWord; ++i) {
      const std::uint32_t word = word_at(words, c * (rows / kPerWord) + i);
      for (int j = 0; j < kPerWord; ++j) codes[(i * kPerWord + j) * cols + c] = integer_at(word, kAwqPlace[j]);
    }
  }
  return codes;
}

std::vector<std::uint8_t> awq_zeros(std::span<const std::byte> words) {
  std::vector<std::uint8_t> zeros;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(words.size() / 4); ++i) {
    const std::uint32_t word = word_at(words, i);
    for (int j = 0; j < kPerWord; ++j) zeros.push_back(integer_at(word, kAwqPlace[j]));
  }
  return zeros;
}

StoredWeight stored(const Int4Matrix& matrix) {
  const auto scales = f16_scales(matrix);
  if (!scales || !blocks_have_one_group(matrix)) return in_f32(matrix);
  const bool middle = std::ranges::all_of(matrix.zeros, [](std::uint8_t zero) { return zero == kMiddle; });
  return middle ? in_blocks<BlockQ4_0>(matrix, BlockType::q4_0, *scales)
                : in_blocks<BlockQ5_0>(matrix, BlockType::q5_0, *scales);
}

}  // namespace baton
