// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "engine/base/errors.h"
#include "engine/base/json_fields.h"

namespace baton {
namespace {

using TensorShape = std::vector<std::int64_t>;

constexpr std::string_view kWeight = "weight";  // how the names of matrices end
constexpr std::int64_t kPerWord = 8;            // integers of 4 bits
constexpr std::int64_t kBlock = 32;             // inputs of a block of Q4_0, Q5_0 and MXFP4

template <class Value>
StoredWeight allocated(BlockType type, std::int64_t rows, std::int64_t cols, Value*& out) {
  const auto data = std::make_shared<std::byte[]>(static_cast<std::size_t>(rows * row_bytes(type, cols)));
  out = reinterpret_cast<Value*>(data.get());
  return {data, type, rows, cols};
}

bool is_int4(WeightFormat format) { return format == WeightFormat::gptq || format == WeightFormat::awq; }

/// "layer.q_proj." of "layer.q_proj.weight"; empty for other names.
std::string stem_of(const std::string& name) {
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
}

std::int64_t parts_of(std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; }

std::int64_t elements_of(const TensorShape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

/// A matrix or a bias of one expert in a tensor of all.
struct StackedExpert {
  std::string stack;  // "layer.experts.down_proj" or "layer.experts.down_proj_bias"
  std::int64_t expert = 0;
};

/// Of "layer.experts.3.down_proj.weight" or ".bias"; empty for other names.
std::optional<StackedExpert> stacked_expert(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.", kMatrix = ".weight", kBias = ".bias";
  const std::size_t at = name.find(kExperts);
  if (at == name.npos || (!name.ends_with(kMatrix) && !name.ends_with(kBias))) return std::nullopt;
  const std::size_t begin = at + kExperts.size();
  StackedExpert place;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + begin, last, place.expert);
  if (error != std::errc() || *end != '.' || place.expert < 0) return std::nullopt;
  place.stack = name.substr(0, begin) + std::string(end + 1, last);
  const bool bias = name.ends_with(kBias);
  place.stack.resize(place.stack.size() - (bias ? kBias : kMatrix).size());
  if (bias) place.stack += "_bias";
  return place;
}

/// out [rows, cols] of in [cols, rows], in tiles that stay in the cache.
template <class Element>
void transpose(std::byte* out, const std::byte* in, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kTile = 64;
  Element* to = reinterpret_cast<Element*>(out);
  const Element* from = reinterpret_cast<const Element*>(in);
  for (std::int64_t n = 0; n < rows; n += kTile)
    for (std::int64_t c = 0; c < cols; c += kTile)
      for (std::int64_t i = n; i < std::min(n + kTile, rows); ++i)
        for (std::int64_t j = c; j < std::min(c + kTile, cols); ++j) to[i * cols + j] = from[j * rows + i];
}

}  // namespace

bool CheckpointWeights::holds(const std::string& name) const {
  return files_.contains(name) ||
         (is_int4(config_.format) && !stem_of(name).empty() && files_.contains(stem_of(name) + "qweight"));
}

/// The name under which the files hold a tensor: models that also see or hear keep their text model a level below, in
/// one of two ways.
std::string CheckpointWeights::in_file(const std::string& name) const {
  constexpr std::string_view kModel = "model.";
  if (holds(name)) return name;
  if (const std::string inner = "language_model." + name; holds(inner)) return inner;
  if (name.starts_with(kModel)) {
    const std::string inner = "model.language_model." + name.substr(kModel.size());
    if (holds(inner)) return inner;
  }
  return name;
}

bool CheckpointWeights::contains(const std::string& name) const {
  if (holds(in_file(name))) return true;
  if (!stacked_experts_) return false;
  const auto place = stacked_expert(name);
  const TensorInfo* info = place ? files_.find(tensor_of(place->stack)) : nullptr;
  return info != nullptr && !info->shape.empty() && place->expert < info->shape.front();
}

StoredWeight CheckpointWeights::weight(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const std::string stored = in_file(name);
  const TensorInfo* info = files_.find(stored);
  if (info == nullptr && holds(stored)) return int4(stem_of(stored), rows, cols);
  if (const auto place = stacked_expert(name);
      info == nullptr && stacked_experts_ && place && files_.contains(tensor_of(place->stack)))
    return expert(place->stack, place->expert, rows, cols);
  if (info != nullptr && info->type == "F8_E4M3" && config_.format == WeightFormat::fp8) return fp8(stored, rows, cols);
  return files_.weight(stored, rows, cols);
}

std::size_t CheckpointWeights::total_bytes() const {
  return files_.total_bytes() + (sizeof(float) - 1) * files_.bytes_of_type("F8_E4M3");
}

/// The data of a tensor that has to be of that type and shape.
std::vector<std::byte> CheckpointWeights::bytes(const std::string& name, const char* type,
                                                const TensorShape& shape) const {
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
  const StoredWeight stored = files_.weight(
      name, info.shape.size() > 1 ? info.shape.front() : 1,
      elements_of(info.shape.size() > 1 ? TensorShape(info.shape.begin() + 1, info.shape.end()) : info.shape));
  std::vector<float> values(static_cast<std::size_t>(elements_of(info.shape)));
  dequantize(values, {stored.data.get(), info.end - info.begin}, stored.type);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw ModelError(fmt::format("{} holds {} at place {}, expected finite scales", place, values[i], i));
  return values;
}

/// The tensor that holds the weights or the biases of all experts, or would.
std::string CheckpointWeights::tensor_of(const std::string& stack) const {
  const std::string blocks = stack + "_blocks";
  return config_.format == WeightFormat::mxfp4 && files_.contains(blocks) ? blocks : stack;
}

/// Throws unless a tensor has the shape [E, shape...] with more than `part` experts.
void CheckpointWeights::check_part(const std::string& name, std::int64_t part, const TensorShape& shape) const {
  const std::string place = files_.place(name);  // throws where it is missing
  const TensorShape& found = files_.find(name)->shape;
  if (found.size() != shape.size() + 1 || !std::equal(shape.begin(), shape.end(), found.begin() + 1))
    throw ModelError(
        fmt::format("{} has shape {}, expected {} of each expert", place, shape_text(found), shape_text(shape)));
  if (part >= found.front())
    throw ModelError(fmt::format("{} is of {} experts, expected expert {}", place, found.front(), part));
}

/// Part `part` of a tensor of all experts. Matrices in bf16, f16 and f32 are stored as inputs by outputs.
StoredWeight CheckpointWeights::expert(const std::string& stack, std::int64_t part, std::int64_t rows,
                                       std::int64_t cols) const {
  if (tensor_of(stack) != stack) return mxfp4(stack, part, rows, cols);
  const bool bias = stack.ends_with("_bias");
  check_part(stack, part, bias ? TensorShape{cols} : TensorShape{cols, rows});
  const TensorInfo& info = *files_.find(stack);
  if (!info.dtype)
    throw ModelError(fmt::format("{} is of type {}, expected BF16, F16 or F32", files_.place(stack), info.type));
  const auto data = files_.read(stack, part);
  const BlockType type = block_type_of(*info.dtype);
  if (bias) return {data, type, rows, cols};
  std::byte* out = nullptr;
  StoredWeight weight = allocated(type, rows, cols, out);
  const auto turn = size_of(*info.dtype) == sizeof(float) ? transpose<std::uint32_t> : transpose<std::uint16_t>;
  turn(out, data.get(), rows, cols);
  return weight;
}

StoredWeight CheckpointWeights::mxfp4(const std::string& stack, std::int64_t part, std::int64_t rows,
                                      std::int64_t cols) const {
  const std::string blocks = stack + "_blocks", scales = stack + "_scales";
  const std::int64_t count = cols / kBlock;
  check_part(blocks, part, {rows, count, kBlock / 2});
  check_part(scales, part, {rows, count});
  for (const std::string& name : {blocks, scales})
    if (const TensorInfo& info = *files_.find(name); info.type != "U8")
      throw ModelError(fmt::format("{} is of type {}, expected U8", files_.place(name), info.type));
  const auto codes = files_.read(blocks, part), powers = files_.read(scales, part);
  const auto places = static_cast<std::size_t>(rows * count);
  return stored(Mxfp4Matrix{{codes.get(), places * kBlock / 2}, {powers.get(), places}, rows, cols});
}

StoredWeight CheckpointWeights::fp8(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const std::vector<std::byte> data = bytes(name, "F8_E4M3", {rows, cols});
  const std::string inverse = stem_of(name) + "weight_scale_inv", plain = stem_of(name) + "weight_scale";
  if (stem_of(name).empty() || (!files_.contains(inverse) && !files_.contains(plain)))
    throw ModelError(fmt::format("{} is of type F8_E4M3, but has no scales: expected a tensor \"{}\" or \"{}\"",
                                 files_.place(name), plain, inverse));
  const std::string scale_name = files_.contains(inverse) ? inverse : plain;
  const TensorShape& shape = files_.find(scale_name)->shape;
  Fp8Matrix matrix{.bytes = data, .rows = rows, .cols = cols, .scales = {}, .block_rows = rows, .block_cols = cols};
  std::string expected = fmt::format("one scale, [{0}] or [{0}, 1]", rows);
  bool fits = elements_of(shape) == 1;
  if (config_.block_rows > 0) {
    matrix.block_rows = config_.block_rows;
    matrix.block_cols = config_.block_cols;
    const TensorShape grid = {parts_of(rows, matrix.block_rows), parts_of(cols, matrix.block_cols)};
    fits = shape == grid;
    expected = fmt::format("{}, as blocks are of {} by {}", shape_text(grid), matrix.block_rows, matrix.block_cols);
  } else if (!fits) {
    matrix.block_rows = 1;
    fits = shape == TensorShape{rows} || shape == TensorShape{rows, 1};
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
  const auto words =
      bytes(stem + "qweight", "I32", gptq ? TensorShape{cols / kPerWord, rows} : TensorShape{cols, rows / kPerWord});
  const auto zeros = bytes(zero_name, "I32", {count, rows / kPerWord});
  const std::string place = files_.place(scale_name);
  if (const TensorShape& shape = files_.find(scale_name)->shape; shape != TensorShape{count, rows})
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

constexpr std::uint8_t kMiddle = 8;                                 // the zero of Q4_0
constexpr std::array<int, 8> kAwqPlace = {0, 4, 1, 5, 2, 6, 3, 7};  // of output j in a word

std::uint32_t word_at(std::span<const std::byte> words, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, words.data() + index * 4, sizeof(word));
  return word;
}

std::uint8_t integer_at(std::uint32_t word, int place) { return static_cast<std::uint8_t>(word >> (4 * place) & 15); }

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

StoredWeight stored(const Mxfp4Matrix& matrix) {
  BlockMXFP4* out = nullptr;
  StoredWeight weight = allocated(BlockType::mxfp4, matrix.rows, matrix.cols, out);
  const auto code = [](const std::byte* pairs, std::size_t input) {
    return std::to_integer<std::uint8_t>(pairs[input / 2]) >> (input % 2 * 4) & 15;
  };
  for (std::size_t block = 0; block < matrix.scales.size(); ++block) {
    const std::byte* pairs = matrix.blocks.data() + block * sizeof(out->q);
    out[block].e = std::to_integer<std::uint8_t>(matrix.scales[block]);
    for (std::size_t i = 0; i < sizeof(out->q); ++i)
      out[block].q[i] = static_cast<std::uint8_t>(code(pairs, i) | code(pairs, i + kBlock / 2) << 4);
  }
  return weight;
}

namespace {

constexpr std::int32_t kMaxExtent = 1 << 20;  // of a group or a block

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

/// The first of two spellings that is there.
std::string key_of(const JsonFields& fields, const char* key, const char* older) {
  return fields.find(key) == nullptr && fields.find(older) != nullptr ? older : key;
}

void require_four_bits(const JsonFields& fields, const char* older) {
  const std::string key = key_of(fields, "bits", older);
  if (fields.integer(key, 1, 64) != 4) fields.fail(key, "but of this method only 4 bits are supported");
}

/// -1 stands for all inputs.
std::int32_t read_group_size(const JsonFields& fields, const char* older) {
  const std::string key = key_of(fields, "group_size", older);
  const std::int32_t size = fields.integer(key, -1, kMaxExtent);
  if (size == 0) fields.fail(key, "expected -1 or a number of inputs");
  return std::max(size, 0);
}

/// Two numbers, outputs and inputs of a block.
void read_block(QuantizationConfig& config, const JsonFields& fields, const std::string& key) {
  const Json* block = fields.find(key);
  if (block == nullptr) return;
  const bool sound = block->is_array() && block->size() == 2 && std::ranges::all_of(*block, [](const Json& extent) {
                       return extent.is_number_integer() && extent >= 1 && extent <= kMaxExtent;
                     });
  if (!sound) fields.fail(key, "expected two numbers, the outputs and the inputs of a block, such as [128, 128]");
  config.block_rows = block->front().get<std::int32_t>();
  config.block_cols = block->back().get<std::int32_t>();
}

QuantizationConfig read_fp8(const JsonFields& fields) {
  if (fields.text_or("fmt", "e4m3") != "e4m3") fields.fail("fmt", "but only e4m3 is supported");
  QuantizationConfig config{.format = WeightFormat::fp8};
  read_block(config, fields, "weight_block_size");
  return config;
}

/// A scheme of compressed-tensors: how the weights of some modules are quantised.
QuantizationConfig read_scheme(const Json& scheme, const std::string& origin, const std::string& prefix) {
  const JsonFields fields(scheme, origin, prefix);
  const Json* entry = fields.find("weights");
  if (entry == nullptr) fields.fail("weights", "expected how weights are quantised");
  const JsonFields weights(*entry, origin, prefix + "weights.");
  if (weights.text_or("type", "") != "float") weights.fail("type", "but only float is supported");
  if (weights.integer("num_bits", 1, 64) != 8) weights.fail("num_bits", "but only 8 are supported");
  if (!weights.flag_or("symmetric", true)) weights.fail("symmetric", "but only symmetric weights are supported");
  QuantizationConfig config{.format = WeightFormat::fp8};
  const std::string strategy = weights.text_or("strategy", "");
  if (strategy == "block") {
    read_block(config, weights, "block_structure");
    if (config.block_rows == 0) weights.fail("block_structure", "expected two numbers, as the strategy is block");
  } else if (strategy != "tensor" && strategy != "channel") {
    weights.fail("strategy", "but only tensor, channel and block are supported");
  }
  return config;
}

QuantizationConfig read_compressed_tensors(const JsonFields& fields, const std::string& origin,
                                           const std::string& prefix) {
  const std::string format = fields.text_or("format", "");
  if (format != "float-quantized" && format != "naive-quantized")
    fields.fail("format", "but of compressed-tensors only float-quantized (FP8) is supported");
  if (const Json* sparsity = fields.find("sparsity_config"); sparsity != nullptr && !sparsity->empty()) {
    if (JsonFields(*sparsity, origin, prefix + "sparsity_config.").text_or("format", "dense") != "dense")
      fields.fail("sparsity_config", "but sparse weights are not supported");
  }
  if (const Json* transforms = fields.find("transform_config"); transforms != nullptr && !transforms->empty()) {
    if (!transforms->is_object() || !transforms->contains("config_groups") || !(*transforms)["config_groups"].empty())
      fields.fail("transform_config", "but transforms of weights are not supported");
  }
  const Json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty())
    fields.fail("config_groups", "expected an object of schemes");
  QuantizationConfig config;
  for (const auto& [name, scheme] : groups->items()) {
    const QuantizationConfig other = read_scheme(scheme, origin, fmt::format("{}config_groups.{}.", prefix, name));
    const bool first = config.format == WeightFormat::plain;
    if (!first && (other.block_rows != config.block_rows || other.block_cols != config.block_cols))
      fields.fail("config_groups", "expected schemes with blocks of one size");
    config = other;
  }
  return config;
}

QuantizationConfig read_gptq(const JsonFields& fields) {
  require_four_bits(fields, "bits");
  const std::string format = lower(fields.text_or(key_of(fields, "checkpoint_format", "format"), "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    fields.fail(key_of(fields, "checkpoint_format", "format"), "but only gptq and gptq_v2 are supported");
  if (fields.flag_or("is_marlin_format", false)) fields.fail("is_marlin_format", "but only gptq is supported");
  if (lower(fields.text_or("pack_dtype", "int32")) != "int32") fields.fail("pack_dtype", "but only int32 is supported");
  return {.format = WeightFormat::gptq,
          .group_size = read_group_size(fields, "group_size"),
          .ordered_by_activation = fields.flag_or("desc_act", false),
          .zeros_less_one = format == "gptq"};
}

QuantizationConfig read_awq(const JsonFields& fields) {
  require_four_bits(fields, "w_bit");
  if (lower(fields.text_or("version", "gemm")) != "gemm") fields.fail("version", "but only gemm is supported");
  if (!fields.flag_or("zero_point", true)) fields.fail("zero_point", "but only weights with zeros are supported");
  return {.format = WeightFormat::awq, .group_size = read_group_size(fields, "q_group_size")};
}

}  // namespace

QuantizationConfig read_quantization(const JsonFields& config, const std::string& origin) {
  const Json* value = config.find("quantization_config");
  if (value == nullptr) return {};
  const std::string prefix = "quantization_config.";
  const JsonFields fields(*value, origin, prefix);
  const std::string method = fields.text_or("quant_method", "");
  if (method == "fp8") return read_fp8(fields);
  if (method == "compressed-tensors") return read_compressed_tensors(fields, origin, prefix);
  if (method == "gptq") return read_gptq(fields);
  if (method == "awq") return read_awq(fields);
  if (method == "mxfp4") return {.format = WeightFormat::mxfp4};
  fields.fail("quant_method",
              "but supported are fp8, compressed-tensors, gptq, awq and mxfp4; or use a checkpoint in bf16");
}

}  // namespace baton
