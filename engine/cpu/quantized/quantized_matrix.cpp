// SPDX-License-Identifier: Apache-2.0
// Packing reads the blocks of 32 rows into bytes, one for each code, and writes those as planes, a word of four codes
// at a time.
#include "engine/cpu/quantized/quantized.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/backend/backend.h"
#include "engine/tensor/block_types.h"

namespace baton::cpu {
namespace {

/// The blocks of 32 rows over up to 256 inputs.
using OpenPanel = std::array<OpenBlock, kPanel>;

/// Four codes, bits [shift, ...) of each under `mask`.
std::uint32_t codes_of(const OpenPanel& from, std::int64_t n, std::int64_t input, int shift, std::uint32_t mask) {
  std::uint32_t word;
  std::memcpy(&word, from[n].codes + input, sizeof(word));
  return word >> shift & mask;
}

void put(std::byte* out, std::int64_t index, std::uint32_t word) { std::memcpy(out + index * 4, &word, sizeof(word)); }

constexpr std::int64_t kOneBitBytes = kPanel * kQuantBlock / 8, kFourBitBytes = 4 * kOneBitBytes;  // of planes

/// The quants of inputs [input, input + 32).
void write_codes(std::byte* out, const OpenPanel& from, std::int64_t input, int bits) {
  if (bits == 8) {
    for (std::int64_t g = 0; g < 8; ++g) {
      for (std::int64_t n = 0; n < kPanel; ++n) put(out, g * kPanel + n, codes_of(from, n, input + 4 * g, 0, ~0u));
    }
    return;
  }
  int shift = 0;
  if (bits >= 4) {
    for (std::int64_t g = 0; g < 8; ++g) {
      for (std::int64_t n = 0; n < 16; ++n) {
        const std::uint32_t low = codes_of(from, n, input + 4 * g, 0, 0x0f0f0f0f);
        put(out, g * 16 + n, low | codes_of(from, n + 16, input + 4 * g, 0, 0x0f0f0f0f) << 4);
      }
    }
    out += kFourBitBytes;
    shift = 4;
  }
  for (const int more : {2, 1}) {
    if ((bits & more) == 0) continue;
    const std::uint32_t mask = more == 1 ? 0x01010101 : 0x03030303;
    const std::int64_t rows = 8 / more;
    for (std::int64_t half = 0; half < more; ++half, out += kOneBitBytes) {
      for (std::int64_t n = 0; n < kPanel; ++n) {
        std::uint32_t word = 0;
        for (std::int64_t g = 0; g < rows; ++g) {
          word |= codes_of(from, n, input + 4 * (half * rows + g), shift, mask) << (g * more);
        }
        put(out, n, word);
      }
    }
    shift += more;
  }
}

/// Code of input i of [0, 32) of output n, as write_codes put it.
int read_code(const std::byte* block, int bits, std::int64_t i, std::int64_t n) {
  const auto byte = [&](std::int64_t word) { return std::to_integer<int>(block[word * 4 + i % 4]); };
  const std::int64_t g = i / 4;
  if (bits == 8) return static_cast<std::int8_t>(byte(g * kPanel + n));
  int code = 0, shift = 0;
  if (bits >= 4) {
    code = byte(g * 16 + n % 16) >> (n / 16 * 4) & 15;
    block += kFourBitBytes;
    shift = 4;
  }
  if ((bits & 2) != 0) {
    code |= (byte(g / 4 * kPanel + n) >> (g % 4 * 2) & 3) << shift;
    block += 2 * kOneBitBytes;
    shift += 2;
  }
  if ((bits & 1) != 0) code |= (byte(n) >> g & 1) << shift;
  return code;
}

int quant_of_code(int code, const CodeFormat& format) {
  switch (format.table) {
    case CodeTable::nonlinear4:
      return kNonlinear4[static_cast<std::size_t>(code)];
    case CodeTable::e2m1:
      return kE2M1Doubled[static_cast<std::size_t>(code)];
    case CodeTable::none:
      break;
  }
  return code - format.offset;
}

void write_chunk(std::byte* out, const OpenPanel& from, const PanelFormat& format, std::int64_t inputs) {
  const auto write = [&](const void* values, std::int64_t bytes) {
    std::memcpy(out, values, static_cast<std::size_t>(bytes));
    out += bytes;
  };
  const auto write_each = [&](const auto& value_of) {
    for (const OpenBlock& block : from) {
      const auto value = value_of(block);
      write(&value, sizeof(value));
    }
  };
  const auto write_factors = [&] {
    write_each([](const OpenBlock& block) { return block.factor; });
    if (format.codes.minimums) write_each([](const OpenBlock& block) { return block.minimum; });
  };
  if (format.integer_scales()) write_factors();
  for (std::int64_t input = 0; input < inputs; input += kQuantBlock) {
    write_codes(out, from, input, format.codes.bits);
    out += format.code_bytes();
    if (format.scales == ScaleType::f16) {
      write_factors();
      continue;
    }
    const std::int64_t b = input / kQuantBlock;
    for (std::int64_t g = b * format.groups(); g < (b + 1) * format.groups(); ++g) {
      write_each([g](const OpenBlock& block) { return block.scales[g]; });
    }
    if (format.codes.minimums && !format.half_bytes()) {
      write_each([b](const OpenBlock& block) { return block.minimums[b]; });
    }
  }
}

void pack_panel(std::byte* out, const BlockView& part, std::int64_t index) {
  const PanelFormat format = panel_format(part.type);
  const std::int64_t values = format_of(part.type).values;
  const std::int64_t first = index * kPanel, count = std::min(kPanel, part.rows - first);
  const std::byte* from = part.row(first);
  const std::int64_t stride = row_bytes(part.type, part.cols);
  OpenPanel blocks{};
  for (std::int64_t c = 0; c < part.cols; c += values) {
    for (std::int64_t n = 0; n < count; ++n) {
      open_block(blocks[n], from + n * stride + c / values * format_of(part.type).bytes, part.type);
    }
    write_chunk(out, blocks, format, values);
    out += values / kQuantBlock * format.block_bytes() + values / kQuantChunk * format.factor_bytes();
  }
}

float f16_at(const std::byte* data, std::int64_t i) {
  std::uint16_t bits;
  std::memcpy(&bits, data + 2 * i, sizeof(bits));
  return f16_to_f32(bits);
}

}  // namespace

const PartPanels& QuantizedMatrix::part_of_panel(std::int64_t panel) const {
  std::size_t i = 0;
  while (i + 1 < parts.size() && parts[i + 1].panel <= panel) ++i;
  return parts[i];
}

const PartPanels& QuantizedMatrix::part_of_row(std::int64_t row) const {
  std::size_t i = 0;
  while (i + 1 < parts.size() && parts[i + 1].row <= row) ++i;
  return parts[i];
}

std::unique_ptr<QuantizedMatrix> pack_quantized(LastingMemory& memory, ThreadPool& pool,
                                                std::span<const BlockRows> parts, std::int64_t rows,
                                                Activations activations) {
  auto matrix = std::make_unique<QuantizedMatrix>();
  matrix->rows = rows;
  matrix->cols = parts[0].cols;
  matrix->dtype = DType::f32;
  matrix->activations = activations;
  std::vector<std::size_t> begin;
  std::int64_t row = 0;
  for (const BlockRows& part : parts) {
    const std::int64_t bytes = panel_format(part.type).panel_bytes(part.cols);
    matrix->parts.push_back({part.type, row, part.rows, matrix->panels, bytes, nullptr});
    begin.push_back(matrix->bytes);
    row += part.rows;
    matrix->panels += panels_of(part.rows);
    matrix->bytes += checked_bytes("load_quantized_rows", panels_of(part.rows), bytes, 1);
  }
  matrix->storage = memory.allocate(matrix->bytes);
  std::vector<std::byte> blocks;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const BlockRows& part = parts[i];
    const std::int64_t stride = row_bytes(part.type, part.cols), panel_bytes = matrix->parts[i].panel_bytes;
    const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / (stride * kPanel)) * kPanel;  // rows of a piece
    std::byte* data = matrix->storage.data() + begin[i];
    matrix->parts[i].data = data;
    for (std::int64_t first = 0; first < part.rows; first += step) {
      const std::int64_t count = std::min(step, part.rows - first);
      blocks.resize(static_cast<std::size_t>(count * stride));
      part.read(blocks, first);
      const BlockView piece{blocks, part.type, count, part.cols};
      std::byte* panels = data + first / kPanel * panel_bytes;
      pool.run(panels_of(count), count * part.cols,
               [&](std::int64_t index, int) { pack_panel(panels + index * panel_bytes, piece, index); });
    }
  }
  return matrix;
}

namespace {

/// The scale and the minimum of one group.
struct GroupScale {
  float scale, minimum;
};

/// Of group g of output n of a block. `factors` are those of the chunk, `scales` those of the block.
GroupScale group_scale(const PanelFormat& format, const std::byte* factors, const std::byte* scales, std::int64_t g,
                       std::int64_t n) {
  const bool minimums = format.codes.minimums;
  const auto byte = [&](std::int64_t row) { return std::to_integer<std::uint8_t>(scales[row * kPanel + n]); };
  if (format.scales == ScaleType::f16) return {f16_at(scales, n), minimums ? f16_at(scales, kPanel + n) : 0};
  if (format.scales == ScaleType::exponents) return {half_exponent(byte(0)), 0};
  const float factor = f16_at(factors, n);
  if (!minimums) return {factor * static_cast<float>(static_cast<std::int8_t>(byte(g))), 0};
  const int scale = format.half_bytes() ? byte(g) & 15 : byte(0),
            minimum = format.half_bytes() ? byte(g) >> 4 : byte(1);
  return {factor * static_cast<float>(scale), -(f16_at(factors, kPanel + n) * static_cast<float>(minimum))};
}

}  // namespace

void dequantize_row(float* out, const QuantizedMatrix& matrix, std::int64_t row) {
  const PartPanels& part = matrix.part_of_row(row);
  const PanelFormat format = panel_format(part.type);
  const std::int64_t n = (row - part.row) % kPanel;
  const std::byte* panel = part.data + (row - part.row) / kPanel * part.panel_bytes;
  for (std::int64_t c = 0; c < matrix.cols; c += kQuantBlock) {
    const std::byte* chunk = panel + c / kQuantChunk * format.chunk_bytes();
    const std::byte* block = chunk + format.factor_bytes() + c % kQuantChunk / kQuantBlock * format.block_bytes();
    const std::byte* scales = block + format.code_bytes();
    GroupScale groups[2];
    for (std::int64_t g = 0; g < format.groups(); ++g) groups[g] = group_scale(format, chunk, scales, g, n);
    for (std::int64_t i = 0; i < kQuantBlock; ++i) {
      const GroupScale& group = groups[i / format.codes.group];
      const int quant = quant_of_code(read_code(block, format.codes.bits, i, n), format.codes);
      const float product = static_cast<float>(quant) * group.scale;
      out[c + i] = format.codes.minimums ? product + group.minimum : product;
    }
  }
}

}  // namespace baton::cpu
