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

/// The quants of inputs [input, input + 32).
void write_codes(std::byte* out, const OpenPanel& from, std::int64_t input, int bits) {
  if (bits == 8) {
    for (std::int64_t g = 0; g < 8; ++g) {
      for (std::int64_t n = 0; n < kPanel; ++n) put(out, g * kPanel + n, codes_of(from, n, input + 4 * g, 0, ~0u));
    }
    return;
  }
  for (std::int64_t g = 0; g < 8; ++g) {
    for (std::int64_t n = 0; n < 16; ++n) {
      const std::uint32_t low = codes_of(from, n, input + 4 * g, 0, 0x0f0f0f0f);
      put(out, g * 16 + n, low | codes_of(from, n + 16, input + 4 * g, 0, 0x0f0f0f0f) << 4);
    }
  }
  const int more = bits - 4;  // of each code
  const std::uint32_t mask = more == 1 ? 0x01010101 : 0x03030303;
  for (std::int64_t part = 0; part < more; ++part) {
    const std::int64_t rows = 8 / more;
    for (std::int64_t n = 0; n < kPanel; ++n) {
      std::uint32_t word = 0;
      for (std::int64_t g = 0; g < rows; ++g) {
        word |= codes_of(from, n, input + 4 * (part * rows + g), 4, mask) << (g * more);
      }
      put(out, 128 + part * kPanel + n, word);
    }
  }
}

/// Code of input i of [0, 32) of output n, as write_codes put it.
int read_code(const std::byte* block, int bits, std::int64_t i, std::int64_t n) {
  const auto byte = [&](std::int64_t word) { return std::to_integer<int>(block[word * 4 + i % 4]); };
  const std::int64_t g = i / 4;
  if (bits == 8) return static_cast<std::int8_t>(byte(g * kPanel + n));
  const int low = byte(g * 16 + n % 16) >> (n / 16 * 4) & 15;
  if (bits == 4) return low;
  if (bits == 5) return low | (byte(128 + n) >> g & 1) << 4;
  return low | (byte(128 + g / 4 * kPanel + n) >> (g % 4 * 2) & 3) << 4;
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
  if (format.integer_scales) write_factors();
  for (std::int64_t input = 0; input < inputs; input += kQuantBlock) {
    write_codes(out, from, input, format.codes.bits);
    out += format.code_bytes();
    if (format.integer_scales) {
      const std::int64_t b = input / kQuantBlock;
      for (std::int64_t g = b * format.groups(); g < (b + 1) * format.groups(); ++g) {
        write_each([g](const OpenBlock& block) { return block.scales[g]; });
      }
      if (format.codes.minimums) write_each([b](const OpenBlock& block) { return block.minimums[b]; });
    } else {
      write_factors();
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

std::unique_ptr<QuantizedMatrix> pack_quantized(Backend& owner, ThreadPool& pool, std::span<const BlockRows> parts,
                                                std::int64_t rows, Activations activations) {
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
  matrix->storage = owner.allocate(matrix->bytes);
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

void dequantize_row(float* out, const QuantizedMatrix& matrix, std::int64_t row) {
  const PartPanels& part = matrix.part_of_row(row);
  const PanelFormat format = panel_format(part.type);
  const std::int64_t n = (row - part.row) % kPanel;
  const std::byte* panel = part.data + (row - part.row) / kPanel * part.panel_bytes;
  for (std::int64_t c = 0; c < matrix.cols; c += kQuantBlock) {
    const std::byte* chunk = panel + c / kQuantChunk * format.chunk_bytes();
    const std::byte* block = chunk + format.factor_bytes() + c % kQuantChunk / kQuantBlock * format.block_bytes();
    const std::byte* scales = block + format.code_bytes();
    float scale[2], minimum = 0;
    for (std::int64_t g = 0; g < format.groups(); ++g) {
      scale[g] = format.integer_scales
                     ? f16_at(chunk, n) * static_cast<float>(std::to_integer<std::int8_t>(scales[g * kPanel + n]))
                     : f16_at(scales, n);
    }
    if (format.codes.minimums) {
      minimum = format.integer_scales
                    ? -(f16_at(chunk, kPanel + n) * static_cast<float>(std::to_integer<int>(scales[kPanel + n])))
                    : f16_at(scales, kPanel + n);
    }
    for (std::int64_t i = 0; i < kQuantBlock; ++i) {
      const int quant = read_code(block, format.codes.bits, i, n) - format.codes.offset;
      const float product = static_cast<float>(quant) * scale[i / format.codes.group];
      out[c + i] = format.codes.minimums ? product + minimum : product;
    }
  }
}

}  // namespace baton::cpu
