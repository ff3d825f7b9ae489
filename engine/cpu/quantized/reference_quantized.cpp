// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/quantized/quantized.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/tensor/block_types.h"
#include "engine/tensor/fused.h"

namespace baton::cpu {
namespace {

constexpr std::int64_t kBlock = 32;  // inputs that share the scale of an activation

template <class Block>
Block block_at(const std::byte* row, std::int64_t index) {
  Block block;
  std::memcpy(&block, row + index * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

int half(const std::uint8_t* q, std::int64_t i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }
int fifth_bit(const std::uint8_t* high, std::int64_t i) { return (high[i / 8] >> (i % 8) & 1) << 4; }

template <class Block>
Quant grouped(const Block& block, int quant, std::int64_t group) {
  const GroupScales groups = group_scales(block.scales);
  return {quant, f16_to_f32(block.d) * static_cast<float>(groups.scale[group]),
          -(f16_to_f32(block.dmin) * static_cast<float>(groups.minimum[group])), 32, true};
}

/// A row of activations in 8 bits.
struct Activation {
  std::vector<int> quants;
  std::vector<float> scales;  // one for each block
};

Activation quantized(const float* x, std::int64_t cols) {
  Activation out;
  for (std::int64_t c = 0; c < cols; c += kBlock) {
    float largest = 0;
    bool finite = true;
    for (std::int64_t i = c; i < c + kBlock; ++i) {
      finite = finite && std::isfinite(x[i]);
      largest = std::max(largest, std::abs(x[i]));
    }
    const bool zeros = !finite || largest < 0x1p-100f;
    const float scale = largest / 127.0f, inverse = 127.0f / largest;
    out.scales.push_back(!finite ? std::numeric_limits<float>::quiet_NaN() : zeros ? 0.0f : scale);
    for (std::int64_t i = c; i < c + kBlock; ++i) {
      out.quants.push_back(zeros ? 0 : static_cast<int>(std::nearbyint(x[i] * inverse)));
    }
  }
  return out;
}

float multiply(const Activation& x, BlockType type, const std::byte* row, float bias) {
  float acc = bias;
  const auto cols = static_cast<std::int64_t>(x.quants.size());
  for (std::int64_t c = 0; c < cols; c += kBlock) {
    const float x_scale = x.scales[c / kBlock];
    const int group = quant_of(type, row, c).group;
    int x_sum = 0;
    for (std::int64_t g = c; g < c + kBlock; g += group) {
      int sum = 0;
      for (std::int64_t i = g; i < g + group; ++i) {
        sum += quant_of(type, row, i).quant * x.quants[i];
        x_sum += x.quants[i];
      }
      acc = fused(static_cast<float>(sum) * x_scale, quant_of(type, row, g).scale, acc);
    }
    const Quant last = quant_of(type, row, c);
    if (last.has_minimum) acc = fused(last.minimum, x_scale * static_cast<float>(x_sum), acc);
  }
  return acc;
}

}  // namespace

Quant quant_of(BlockType type, const std::byte* row, std::int64_t i) {
  const std::int64_t values = format_of(type).values, index = i / values;
  i %= values;
  switch (type) {
    case BlockType::q8_0: {
      const auto block = block_at<BlockQ8_0>(row, index);
      return {block.q[i], f16_to_f32(block.d)};
    }
    case BlockType::q4_0: {
      const auto block = block_at<BlockQ4_0>(row, index);
      return {half(block.q, i) - 8, f16_to_f32(block.d)};
    }
    case BlockType::q4_1: {
      const auto block = block_at<BlockQ4_1>(row, index);
      return {half(block.q, i), f16_to_f32(block.d), f16_to_f32(block.m), 32, true};
    }
    case BlockType::q5_0: {
      const auto block = block_at<BlockQ5_0>(row, index);
      return {(half(block.q, i) | fifth_bit(block.high, i)) - 16, f16_to_f32(block.d)};
    }
    case BlockType::q5_1: {
      const auto block = block_at<BlockQ5_1>(row, index);
      return {half(block.q, i) | fifth_bit(block.high, i), f16_to_f32(block.d), f16_to_f32(block.m), 32, true};
    }
    case BlockType::q4_k: {
      const auto block = block_at<BlockQ4_K>(row, index);
      return grouped(block, block.q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15, i / 32);
    }
    case BlockType::q5_k: {
      const auto block = block_at<BlockQ5_K>(row, index);
      const int low = block.q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
      return grouped(block, low | (block.high[i % 32] >> (i / 32) & 1) << 4, i / 32);
    }
    case BlockType::q6_k: {
      const auto block = block_at<BlockQ6_K>(row, index);
      const std::int64_t half_block = i / 128, at = i % 128;
      const int low = block.low[half_block * 64 + at % 64] >> (at / 64 * 4) & 15;
      const int high = block.high[half_block * 32 + at % 32] >> (at / 32 * 2) & 3;
      const std::int64_t group = i / 16;
      return {(low | high << 4) - 32, f16_to_f32(block.d) * static_cast<float>(block.scales[group]), 0, 16};
    }
    default:
      throw std::logic_error("a block type without quants");
  }
}

ReferenceBlocks::ReferenceBlocks(std::span<const BlockRows> parts, Activations activations)
    : activations_(activations) {
  cols = parts[0].cols;
  dtype = DType::f32;
  for (const BlockRows& part : parts) {
    std::vector<std::byte>& blocks =
        data_.emplace_back(static_cast<std::size_t>(part.rows * row_bytes(part.type, cols)));
    part.read(blocks, 0);
    rows += part.rows;
    bytes += blocks.size();
    parts_.push_back({blocks, part.type, part.rows, cols});
  }
}

ReferenceBlocks::Row ReferenceBlocks::row(std::int64_t i) const {
  std::size_t part = 0;
  for (; i >= parts_[part].rows; ++part) i -= parts_[part].rows;
  return {parts_[part].type, parts_[part].row(i)};
}

void ReferenceBlocks::dequantize_row(float* out, std::int64_t i) const {
  const Row from = row(i);
  dequantize({out, static_cast<std::size_t>(cols)}, {from.data, static_cast<std::size_t>(row_bytes(from.type, cols))},
             from.type);
}

void reference_quantized_matmul(TensorView out, ConstTensorView x, const ReferenceBlocks& w,
                                std::span<const float> bias) {
  for (std::int64_t n = 0; n < w.rows; ++n) {
    const ReferenceBlocks::Row from = w.row(n);
    const float start = bias.empty() ? 0.0f : bias[n];
    std::vector<float> values(static_cast<std::size_t>(w.cols));
    w.dequantize_row(values.data(), n);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      if (w.activations() == Activations::int8 && has_codes(from.type)) {
        out.f32(t)[n] = multiply(quantized(x.f32(t), x.cols), from.type, from.data, start);
      } else {
        float sum = start;
        for (std::int64_t c = 0; c < w.cols; ++c) sum = fused(x.f32(t)[c], values[c], sum);
        out.f32(t)[n] = sum;
      }
    }
  }
}

}  // namespace baton::cpu
