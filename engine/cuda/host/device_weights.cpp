// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/device_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "engine/backend/backend.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/quantized/quantized.h"
#include "engine/tensor/block_types.h"

namespace baton::cuda {
namespace {

/// Rows of a matrix are padded with zeros to a multiple of this many elements, so that every row is aligned to 16
/// bytes.
constexpr std::int64_t kRowUnit = 8;
constexpr std::int64_t kLoadedBytes = std::int64_t{16} << 20;  // of host memory, uploaded or converted at once

}  // namespace

DeviceMatrix::DeviceMatrix(Runtime& runtime, std::int64_t rows_in, std::int64_t cols_in, DType dtype_in)
    : stride(round_up(cols_in, kRowUnit)), runtime_(runtime) {
  rows = rows_in;
  cols = cols_in;
  dtype = dtype_in;
  bytes = checked_bytes("load_matrix", rows, stride, size_of(dtype));
  data = static_cast<std::byte*>(runtime_.allocate(bytes));
}

void DeviceMatrix::load(std::int64_t first, const ConstTensorView& part, Stream stream, Staging& staging,
                        DeviceScratch& scratch) {
  const auto element = static_cast<std::int64_t>(size_of(part.dtype));
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kLoadedBytes / (part.stride * element));
  for (std::int64_t row = 0; row < part.rows; row += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, part.rows - row);
    const ConstTensorView piece = part.row_range(row, row + count);
    // Without the last row's padding, which may lie outside of the part.
    const std::int64_t piece_bytes = ((count - 1) * part.stride + part.cols) * element;
    const TensorView target{data + (first + row) * stride * static_cast<std::int64_t>(size_of(dtype)), dtype, count,
                            stride, stride};
    const bool same = part.dtype == dtype && part.stride == stride && part.cols == stride;
    std::byte* sent = same ? target.data : scratch.reserve<std::byte>(piece_bytes);
    staging.to_device(sent, {piece.data, static_cast<std::size_t>(piece_bytes)});
    if (same) continue;
    launch_copy_rows(stream, target, nullptr,
                     BasicView<const std::byte>{sent, part.dtype, count, part.cols, part.stride}, nullptr, count);
  }
}

const DeviceMatrix& device(const Matrix& matrix) {
  const auto* ours = dynamic_cast<const DeviceMatrix*>(&matrix);
  if (ours == nullptr) throw std::invalid_argument("the matrix belongs to another backend");
  return *ours;
}

Buffer KeptVectors::keep(std::span<const float> values) {
  if (values.empty()) return {};
  Buffer kept{this, runtime_.allocate(values.size_bytes()), values.size_bytes()};
  staging_.to_device(kept.data(), std::as_bytes(values));
  constant_[values.data()] = std::span(reinterpret_cast<const float*>(kept.data()), values.size());
  return kept;
}

void KeptVectors::release(void* data, std::size_t /*bytes*/) noexcept {
  std::erase_if(constant_, [&](const auto& entry) { return entry.second.data() == data; });
  runtime_.release(data);
}

const float* KeptVectors::put(std::span<const float> values) {
  if (values.empty()) return nullptr;
  const auto known = constant_.find(values.data());
  if (known != constant_.end() && known->second.size() == values.size()) return known->second.data();
  auto& kept = vectors_[values.data()];
  if (kept == nullptr) kept = std::make_unique<KeptArrays>(runtime_, staging_);
  return kept->put(values);
}

namespace {

constexpr std::int64_t kChunkInputs = kUnitInputs * kUnitsPerFactor;  // values of a block of the K formats
constexpr std::int64_t kAlignment = 256;                              // of the arrays of a part
constexpr std::int64_t kPanelsPerThread = 4;                          // at least, where several threads write

/// 256 inputs of one output: the codes of all its blocks, and the scales of each or of the only one.
struct OpenChunk {
  std::array<std::uint8_t, kChunkInputs> codes;
  std::array<OpenBlock, kChunkInputs / kBlockInputs> blocks;  // codes are in `codes`; K formats: the first alone
};

/// The arrays of some panels, as QuantizedPart has them.
enum Array : std::uint8_t { kCodes, kHigh, kScales, kFactors };
template <class T>
using PanelArrays = std::array<T, 4>;

PanelArrays<std::size_t> array_bytes(const DeviceFormat& format, std::int64_t panels, std::int64_t units) {
  const auto bytes = [](std::int64_t count, std::int64_t each) {
    return checked_bytes("load_quantized_rows", count, each, 1);
  };
  return {bytes(panels * units, format.code_bytes()), bytes(panels * units, format.high_bytes()),
          bytes(panels * units, format.scale_bytes()),
          bytes(panels * blocks_of(units, kUnitsPerFactor), format.factor_bytes())};
}

std::size_t aligned(std::size_t bytes) {
  return static_cast<std::size_t>(round_up(static_cast<std::int64_t>(bytes), kAlignment));
}

/// Writes panels into their arrays in host memory, in the layout of the device (quantized_layout.h). Threads: each has
/// a writer of its own, and panels of its own.
class PanelWriter {
 public:
  PanelWriter(PanelArrays<std::vector<std::byte>>& arrays, const BlockView& rows)
      : arrays_(arrays),
        rows_(rows),
        type_(rows.type),
        format_(device_format(rows.type)),
        cols_(rows.cols),
        units_(blocks_of(rows.cols, kUnitInputs)) {}

  /// Writes panels [begin, end) of the rows.
  void write(std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const std::int64_t count = std::min(kPanelOutputs, rows_.rows - panel * kPanelOutputs);
      for (std::int64_t input = 0; input < cols_; input += kChunkInputs) {
        for (std::int64_t n = 0; n < kPanelOutputs; ++n) {
          open_[static_cast<std::size_t>(n)] = {};
          if (n < count) open(open_[static_cast<std::size_t>(n)], rows_.row(panel * kPanelOutputs + n), input);
        }
        write_chunk(panel, input / kUnitInputs);
      }
    }
  }

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
    if (!format_.integer_scales()) return;
    const std::int64_t at = panel * blocks_of(units_, kUnitsPerFactor) + first_unit / kUnitsPerFactor;
    for (std::int64_t n = 0; n < kPanelOutputs; ++n) {
      const OpenBlock& block = open_[static_cast<std::size_t>(n)].blocks[0];
      const std::array<std::uint16_t, 2> factors = {block.factor, block.minimum};
      const std::int64_t bytes = format_.factor_bytes() / kPanelOutputs;
      copy(arrays_[kFactors], (at * kPanelOutputs + n) * bytes, factors, bytes);
    }
  }

  void write_codes(std::int64_t at, std::int64_t lane, std::int64_t input) {
    const int bits = format_.codes.bits;
    std::array<std::uint32_t, 8> words{};
    std::array<std::uint32_t, 2> twos{};
    std::uint32_t ones = 0;
    const int first_bit = bits >= 4 ? 4 : 0;  // of the planes of two bits and of one
    for (std::int64_t step = 0; step < 4; ++step) {
      const std::int64_t h = step / 2, s = step % 2, first = input + format_.input_of(h, s, lane % 4);
      for (std::int64_t j = 0; j < 4; ++j) {
        const OpenChunk& chunk = open_[static_cast<std::size_t>(lane / 4 + 8 * (j % 2))];
        const std::uint32_t even = chunk.codes[static_cast<std::size_t>(first + j / 2 * 2)];
        const std::uint32_t odd = chunk.codes[static_cast<std::size_t>(first + j / 2 * 2 + 1)];
        if (bits == 8) {
          words[static_cast<std::size_t>(4 * h + 2 * s + j % 2)] |= (even | odd << 8) << (j / 2 * 16);
          continue;
        }
        words[static_cast<std::size_t>(step)] |= ((even & 15u) | (odd & 15u) << 16) << (4 * j);
        const auto two = [&](std::uint32_t code) { return code >> first_bit & 3u; };
        const auto one = [&](std::uint32_t code) { return code >> (first_bit + (bits & 2)) & 1u; };
        twos[static_cast<std::size_t>(h)] |= (two(even) | two(odd) << 16) << (2 * (4 * s + j));
        ones |= (one(even) | one(odd) << 16) << (4 * step + j);
      }
    }
    if (bits == 8) {
      for (std::int64_t i = 0; i < 8; ++i) {
        put(arrays_[kCodes], at * 256 + i / 4 * 128 + lane * 4 + i % 4, words[static_cast<std::size_t>(i)]);
      }
      return;
    }
    std::vector<std::byte>& second = arrays_[bits >= 4 ? kHigh : kCodes];
    for (std::int64_t i = 0; i < 4 && bits >= 4; ++i)
      put(arrays_[kCodes], at * 128 + lane * 4 + i, words[static_cast<std::size_t>(i)]);
    for (std::int64_t i = 0; i < 2 && (bits & 2) != 0; ++i)
      put(second, (at * 32 + lane) * 2 + i, twos[static_cast<std::size_t>(i)]);
    if ((bits & 1) != 0) put(arrays_[kHigh], at * 32 + lane, ones);
  }

  void write_scales(std::int64_t at, std::int64_t n, std::int64_t unit) {
    const auto& blocks = open_[static_cast<std::size_t>(n)].blocks;
    const OpenBlock& first = blocks[static_cast<std::size_t>(2 * unit)];
    const OpenBlock& second = blocks[static_cast<std::size_t>(2 * unit + 1)];
    const std::int64_t bytes = format_.output_bytes(), to = (at * kPanelOutputs + n) * bytes;
    switch (format_.scales) {
      case ScaleType::f16:
        return copy(arrays_[kScales], to,
                    std::array<std::uint16_t, 4>{first.factor, second.factor, first.minimum, second.minimum}, bytes);
      case ScaleType::exponents:
        return copy(arrays_[kScales], to, std::array<std::uint8_t, 2>{first.scales[0], second.scales[0]}, bytes);
      case ScaleType::integers:
        break;
    }
    const std::int64_t groups = kUnitInputs / format_.codes.group;
    std::array<std::uint8_t, 4> integers{};
    std::copy_n(blocks[0].scales + unit * groups, groups, integers.begin());
    if (groups < bytes) std::copy_n(blocks[0].minimums + unit * groups, groups, integers.begin() + groups);
    copy(arrays_[kScales], to, integers, bytes);
  }

  template <class Values>
  static void copy(std::vector<std::byte>& out, std::int64_t at, const Values& values, std::int64_t bytes) {
    std::memcpy(out.data() + at, values.data(), static_cast<std::size_t>(bytes));
  }
  static void put(std::vector<std::byte>& out, std::int64_t index, std::uint32_t word) {
    std::memcpy(out.data() + index * 4, &word, sizeof(word));
  }

  PanelArrays<std::vector<std::byte>>& arrays_;
  const BlockView& rows_;
  BlockType type_;
  DeviceFormat format_;
  std::int64_t cols_, units_;
  std::array<OpenChunk, kPanelOutputs> open_;
};

/// The arrays of the panels of some rows, written by at most `threads` threads.
void write_panels(PanelArrays<std::vector<std::byte>>& arrays, const BlockView& rows, int threads) {
  const std::int64_t panels = blocks_of(rows.rows, kPanelOutputs);
  const PanelArrays<std::size_t> bytes =
      array_bytes(device_format(rows.type), panels, blocks_of(rows.cols, kUnitInputs));
  for (std::size_t i = 0; i < bytes.size(); ++i) arrays[i].assign(bytes[i], {});
  const std::int64_t pieces = std::clamp<std::int64_t>(panels / kPanelsPerThread, 1, threads);
  const auto write = [&](std::int64_t begin, std::int64_t end) {
    PanelWriter(arrays, rows).write(panels * begin / pieces, panels * end / pieces);
  };
  std::vector<std::jthread> others;
  std::int64_t started = 1;
  try {
    for (; started < pieces; ++started) others.emplace_back(write, started, started + 1);
  } catch (const std::system_error&) {  // no more threads: the caller does what is left
  }
  write(0, 1);
  write(started, pieces);
}

}  // namespace

DeviceBlocks::DeviceBlocks(Runtime& runtime, Staging& staging, std::span<const BlockRows> parts, int threads)
    : memory_(runtime) {
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
    for (const std::size_t one : array_bytes(device_format(part.type), parts_.back().panels(), units))
      bytes += aligned(one);
    rows += part.rows;
  }
  auto* next = static_cast<std::byte*>(memory_.reserve(bytes));
  std::vector<std::byte> blocks;
  PanelArrays<std::vector<std::byte>> arrays;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const BlockRows& part = parts[i];
    const PanelArrays<std::size_t> sizes = array_bytes(device_format(part.type), parts_[i].panels(), units);
    PanelArrays<std::byte*> to{};
    for (std::size_t array = 0; array < to.size(); ++array) {
      to[array] = next;
      next += aligned(sizes[array]);
    }
    parts_[i].codes = to[kCodes];
    parts_[i].high = to[kHigh];
    parts_[i].scales = to[kScales];
    parts_[i].factors = to[kFactors];
    const std::int64_t stride = row_bytes(part.type, cols);
    const std::int64_t step = std::max<std::int64_t>(1, kLoadedBytes / (stride * kPanelOutputs)) * kPanelOutputs;
    for (std::int64_t first = 0; first < part.rows; first += step) {
      const std::int64_t count = std::min(step, part.rows - first);
      blocks.resize(static_cast<std::size_t>(count * stride));
      part.read(blocks, first);
      write_panels(arrays, {blocks, part.type, count, cols}, threads);
      for (std::size_t array = 0; array < to.size(); ++array) {
        const std::vector<std::byte>& from = arrays[array];
        if (!from.empty()) staging.to_device(to[array], from);
        to[array] += from.size();
      }
    }
  }
}

void QuantizedOperations::matmul(Stream stream, TensorView out, ConstTensorView x, const DeviceBlocks& w,
                                 const float* bias) {
  const std::int64_t width = round_up(w.cols, kUnitInputs), blocks = width / kBlockInputs;
  const bool whole = reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  if (x.dtype != DType::bf16 || x.cols != width || !whole) {
    const TensorView rounded{inputs_.reserve<std::byte>(x.rows * width * 2), DType::bf16, x.rows, width, width};
    launch_copy_rows(stream, rounded, nullptr, x, nullptr, x.rows);  // padded with zeros
    x = rounded;
  }
  const bool for_library = bias == nullptr || out.dtype == DType::f32;  // see Product
  if (x.rows >= unpacked_rows_ && for_library) return multiply_unpacked(stream, out, x, w, bias);
  const std::int64_t sum_rows = round_up(x.rows, kSumRows);
  const auto sums_of = [&](DeviceScratch& memory, int group) -> float* {
    const bool needed = std::ranges::any_of(w.parts(), [&](const QuantizedPart& part) {
      const CodeFormat codes = device_format(part.type).codes;
      return codes.minimums && codes.group == group;
    });
    if (!needed) return nullptr;
    auto* sums = memory.reserve<float>(blocks * (kBlockInputs / group) * sum_rows);
    launch_block_sums(stream, sums, sum_rows, x, group);
    return sums;
  };
  const QuantizedProduct product{.out = out.data,
                                 .out_stride = out.stride,
                                 .out_bf16 = out.dtype == DType::bf16,
                                 .x = reinterpret_cast<const Bf16*>(x.data),
                                 .x_stride = x.stride,
                                 .sums = sums_of(sums_, 32),
                                 .half_sums = sums_of(half_sums_, 16),
                                 .sum_rows = sum_rows,
                                 .bias = bias,
                                 .t = x.rows};
  for (const QuantizedPart& part : w.parts()) {
    launch_quantized_product(stream, product, part, runtime_.facts().multiprocessors);
  }
}

void QuantizedOperations::multiply_unpacked(Stream stream, TensorView out, ConstTensorView x, const DeviceBlocks& w,
                                            const float* bias) {
  const std::int64_t panel_bytes = x.cols * kPanelOutputs * static_cast<std::int64_t>(sizeof(Bf16));
  for (const QuantizedPart& part : w.parts()) {
    const std::int64_t pieces = blocks_of(part.panels() * panel_bytes, unpacked_mib_ << 20);
    const std::int64_t panels = blocks_of(part.panels(), pieces);  // pieces of about one size
    auto* unpacked = unpacked_.reserve<Bf16>(panels * kPanelOutputs * x.cols);
    for (std::int64_t panel = 0; panel < part.panels(); panel += panels) {
      const std::int64_t first = panel * kPanelOutputs, row = part.row + first;
      const std::int64_t rows = std::min(panels * kPanelOutputs, part.rows - first);
      launch_unpack_panels(stream, unpacked, part, panel, blocks_of(rows, kPanelOutputs));
      replays_.multiply({.out = out.data + row * static_cast<std::int64_t>(size_of(out.dtype)),
                         .out_stride = out.stride,
                         .x = x.data,
                         .x_stride = x.stride,
                         .w = reinterpret_cast<const std::byte*>(unpacked),
                         .w_stride = x.cols,
                         .bias = bias != nullptr ? bias + row : nullptr,
                         .t = x.rows,
                         .n = rows,
                         .c = x.cols,
                         .dtype = DType::bf16,
                         .out_dtype = out.dtype});
    }
  }
}

void QuantizedOperations::embed(Stream stream, TensorView out, const DeviceBlocks& table, const std::int32_t* ids) {
  for (const QuantizedPart& part : table.parts()) launch_dequantize_rows(stream, out, part, ids);
}

}  // namespace baton::cuda
