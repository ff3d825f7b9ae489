// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/quantized/quantized_weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/backend/checks.h"
#include "engine/cuda/quantized/quantized_kernels.h"
#include "engine/tensor/open_block.h"

namespace baton::cuda {
namespace {

constexpr std::int64_t kChunkInputs = kUnitInputs * kUnitsPerFactor;  // values of a block of the K formats
constexpr std::size_t kAlignment = 256;                               // of the arrays of a part

/// 256 inputs of one output: the codes of all its blocks, and the scales of each or of the only one.
struct OpenChunk {
  std::array<std::uint8_t, kChunkInputs> codes;
  std::array<OpenBlock, kChunkInputs / kBlockInputs> blocks;  // codes are in `codes`; K formats: the first alone
};

/// Bytes of the arrays of some panels.
struct ArrayBytes {
  std::size_t codes, high, scales, factors;

  ArrayBytes(const DeviceFormat& format, std::int64_t panels, std::int64_t units)
      : codes(bytes_of(panels * units, format.code_bytes())),
        high(bytes_of(panels * units, format.high_bytes())),
        scales(bytes_of(panels * units, format.scale_bytes())),
        factors(bytes_of(panels * blocks_of(units, kUnitsPerFactor), format.factor_bytes())) {}
  static std::size_t bytes_of(std::int64_t count, std::int64_t each) {
    return checked_bytes("load_quantized_rows", count, each, 1);
  }
  std::size_t total() const { return round_up(codes) + round_up(high) + round_up(scales) + round_up(factors); }
  static std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
};

/// The arrays of some panels in host memory, in the layout of the device (quantized_layout.h).
class PanelWriter {
 public:
  PanelWriter(BlockType type, std::int64_t cols)
      : type_(type), format_(device_format(type)), cols_(cols), units_(blocks_of(cols, kUnitInputs)) {}

  /// Writes the panels of `rows` rows of blocks.
  void write(const BlockView& rows) {
    const std::int64_t panels = blocks_of(rows.rows, kPanelOutputs);
    const ArrayBytes bytes(format_, panels, units_);
    codes.assign(bytes.codes, {});
    high.assign(bytes.high, {});
    scales.assign(bytes.scales, {});
    factors.assign(bytes.factors, {});
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t count = std::min(kPanelOutputs, rows.rows - panel * kPanelOutputs);
      for (std::int64_t input = 0; input < cols_; input += kChunkInputs) {
        for (std::int64_t n = 0; n < kPanelOutputs; ++n) {
          open_[static_cast<std::size_t>(n)] = {};
          if (n < count) open(open_[static_cast<std::size_t>(n)], rows.row(panel * kPanelOutputs + n), input);
        }
        write_chunk(panel, input / kUnitInputs);
      }
    }
  }

  std::vector<std::byte> codes, high, scales, factors;

 private:
  void open(OpenChunk& out, const std::byte* row, std::int64_t input) {
    const BlockFormat& format = format_of(type_);
    const std::int64_t end = std::min(kChunkInputs, cols_ - input);
    for (std::int64_t i = 0; i < end; i += format.values) {
      OpenBlock& block = out.blocks[static_cast<std::size_t>(i / kBlockInputs)];
      open_block(block, row + (input + i) / format.values * format.bytes, type_);
      std::copy_n(block.codes, format.values, out.codes.begin() + i);
    }
    if (format_.codes.bits < 8) return;
    for (std::int64_t i = 0; i < end; ++i) out.codes[static_cast<std::size_t>(i)] ^= 0x80u;  // 128 more
  }

  void write_chunk(std::int64_t panel, std::int64_t first_unit) {
    const std::int64_t end = std::min(first_unit + kUnitsPerFactor, units_);
    for (std::int64_t unit = first_unit; unit < end; ++unit) {
      const std::int64_t at = panel * units_ + unit, in_chunk = unit - first_unit;
      for (std::int64_t lane = 0; lane < 32; ++lane) write_codes(at, lane, in_chunk * kUnitInputs);
      for (std::int64_t n = 0; n < kPanelOutputs; ++n) write_scales(at, n, in_chunk);
    }
    if (!format_.integer_scales) return;
    const std::int64_t at = panel * blocks_of(units_, kUnitsPerFactor) + first_unit / kUnitsPerFactor;
    for (std::int64_t n = 0; n < kPanelOutputs; ++n) {
      const OpenBlock& block = open_[static_cast<std::size_t>(n)].blocks[0];
      put(factors, at * kPanelOutputs + n, pair(block.factor, block.minimum));
    }
  }

  void write_codes(std::int64_t at, std::int64_t lane, std::int64_t input) {
    std::array<std::uint32_t, 8> words{};
    std::array<std::uint32_t, 2> more{};
    for (std::int64_t step = 0; step < 4; ++step) {
      const std::int64_t h = step / 2, s = step % 2, first = input + format_.input_of(h, s, lane % 4);
      for (std::int64_t j = 0; j < 4; ++j) {
        const OpenChunk& chunk = open_[static_cast<std::size_t>(lane / 4 + 8 * (j % 2))];
        const std::uint32_t even = chunk.codes[static_cast<std::size_t>(first + j / 2 * 2)];
        const std::uint32_t odd = chunk.codes[static_cast<std::size_t>(first + j / 2 * 2 + 1)];
        if (format_.codes.bits == 8) {
          words[static_cast<std::size_t>(4 * h + 2 * s + j % 2)] |= (even | odd << 8) << (j / 2 * 16);
          continue;
        }
        words[static_cast<std::size_t>(step)] |= ((even & 15u) | (odd & 15u) << 16) << (4 * j);
        const std::uint32_t high_bits = even >> 4 | odd >> 4 << 16;
        if (format_.codes.bits == 5) more[0] |= high_bits << (4 * step + j);
        if (format_.codes.bits == 6) more[static_cast<std::size_t>(h)] |= high_bits << (2 * (4 * s + j));
      }
    }
    if (format_.codes.bits == 8) {
      for (std::int64_t i = 0; i < 8; ++i) {
        put(codes, at * 256 + i / 4 * 128 + lane * 4 + i % 4, words[static_cast<std::size_t>(i)]);
      }
      return;
    }
    for (std::int64_t i = 0; i < 4; ++i) put(codes, at * 128 + lane * 4 + i, words[static_cast<std::size_t>(i)]);
    const std::int64_t count = format_.high_bytes() / 128;
    for (std::int64_t i = 0; i < count; ++i) {
      put(high, (at * 32 + lane) * count + i, more[static_cast<std::size_t>(i)]);
    }
  }

  void write_scales(std::int64_t at, std::int64_t n, std::int64_t unit) {
    const auto& blocks = open_[static_cast<std::size_t>(n)].blocks;
    if (!format_.integer_scales) {
      const OpenBlock& first = blocks[static_cast<std::size_t>(2 * unit)];
      const OpenBlock& second = blocks[static_cast<std::size_t>(2 * unit + 1)];
      const std::int64_t words = format_.scale_bytes() / 64, word = (at * kPanelOutputs + n) * words;
      put(scales, word, pair(first.factor, second.factor));
      if (words == 2) put(scales, word + 1, pair(first.minimum, second.minimum));
      return;
    }
    const bool minimums = format_.codes.minimums;
    const std::uint8_t* groups = blocks[0].scales + unit * (minimums ? 2 : 4);
    std::array<std::uint8_t, 4> bytes = {groups[0], groups[1], groups[2], groups[3]};
    if (minimums) std::copy_n(blocks[0].minimums + unit * 2, 2, bytes.begin() + 2);
    std::memcpy(scales.data() + (at * kPanelOutputs + n) * 4, bytes.data(), bytes.size());
  }

  static std::uint32_t pair(std::uint16_t low, std::uint16_t high) { return low | std::uint32_t{high} << 16; }
  static void put(std::vector<std::byte>& out, std::int64_t index, std::uint32_t word) {
    std::memcpy(out.data() + index * 4, &word, sizeof(word));
  }

  BlockType type_;
  DeviceFormat format_;
  std::int64_t cols_, units_;
  std::array<OpenChunk, kPanelOutputs> open_;
};

}  // namespace

DeviceBlocks::DeviceBlocks(Runtime& runtime, Staging& staging, std::span<const BlockRows> parts) : memory_(runtime) {
  cols = parts[0].cols;
  dtype = DType::bf16;  // of the inputs of its products
  const std::int64_t units = blocks_of(cols, kUnitInputs);
  for (const BlockRows& part : parts) {
    parts_.push_back({.type = part.type,
                      .row = rows,
                      .rows = part.rows,
                      .units = units,
                      .factor_units = blocks_of(units, kUnitsPerFactor),
                      .split_units = blocks_of(units, kSplits)});
    bytes += ArrayBytes(device_format(part.type), parts_.back().panels(), units).total();
    rows += part.rows;
  }
  auto* next = static_cast<std::byte*>(memory_.reserve(bytes));
  std::vector<std::byte> blocks;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const BlockRows& part = parts[i];
    const DeviceFormat format = device_format(part.type);
    const ArrayBytes all(format, parts_[i].panels(), units);
    std::array<std::byte*, 4> to{};
    const std::array<std::size_t, 4> sizes = {all.codes, all.high, all.scales, all.factors};
    for (std::size_t array = 0; array < to.size(); ++array) {
      to[array] = next;
      next += ArrayBytes::round_up(sizes[array]);
    }
    parts_[i].codes = to[0], parts_[i].high = to[1], parts_[i].scales = to[2], parts_[i].factors = to[3];
    PanelWriter writer(part.type, cols);
    const std::int64_t stride = row_bytes(part.type, cols);
    const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / (stride * kPanelOutputs)) * kPanelOutputs;
    for (std::int64_t first = 0; first < part.rows; first += step) {
      const std::int64_t count = std::min(step, part.rows - first);
      blocks.resize(static_cast<std::size_t>(count * stride));
      part.read(blocks, first);
      writer.write({blocks, part.type, count, cols});
      const std::array<std::span<const std::byte>, 4> from = {writer.codes, writer.high, writer.scales, writer.factors};
      for (std::size_t array = 0; array < to.size(); ++array) {
        if (!from[array].empty()) staging.to_device(to[array], from[array]);
        to[array] += from[array].size();
      }
    }
  }
}

void QuantizedOperations::matmul(Stream stream, TensorView out, ConstTensorView x, const DeviceBlocks& w,
                                 const float* bias) {
  const std::int64_t width = round_up(w.cols, kUnitInputs), blocks = width / kBlockInputs;
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  if (x.dtype != DType::bf16 || x.cols != width || !aligned) {
    const TensorView rounded{inputs_.reserve<std::byte>(x.rows * width * 2), DType::bf16, x.rows, width, width};
    launch_copy_rows(stream, rounded, nullptr, x, nullptr, x.rows);  // padded with zeros
    x = rounded;
  }
  const std::int64_t sum_rows = round_up(x.rows, kSumRows);
  const bool minimums =
      std::ranges::any_of(w.parts(), [](const QuantizedPart& part) { return device_format(part.type).codes.minimums; });
  float* sums = minimums ? sums_.reserve<float>(blocks * sum_rows) : nullptr;
  if (minimums) launch_block_sums(stream, sums, sum_rows, x);
  const QuantizedProduct product{.out = out.data,
                                 .out_stride = out.stride,
                                 .out_bf16 = out.dtype == DType::bf16,
                                 .x = reinterpret_cast<const Bf16*>(x.data),
                                 .x_stride = x.stride,
                                 .sums = sums,
                                 .sum_rows = sum_rows,
                                 .bias = bias,
                                 .t = x.rows};
  for (const QuantizedPart& part : w.parts()) {
    launch_quantized_product(stream, product, part, runtime_.multiprocessors());
  }
}

void QuantizedOperations::embed(Stream stream, TensorView out, const DeviceBlocks& table, const std::int32_t* ids) {
  for (const QuantizedPart& part : table.parts()) launch_dequantize_rows(stream, out, part, ids);
}

}  // namespace baton::cuda
