// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "engine/base/errors.h"
#include "engine/model/packed_weights.h"

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

}  // namespace baton
