// SPDX-License-Identifier: Apache-2.0
// Packing reads the blocks of 32 rows into bytes, one for each code, and writes those as planes, a word of four codes
// at a time.
#include "engine/cpu/quantized/quantized_matrix.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/checks.h"

namespace baton::cpu {
namespace {

/// Blocks of 32 rows over up to 256 inputs, taken apart.
struct OpenBlocks {
  std::uint8_t codes[kPanel][kQuantChunk];
  std::uint16_t factor[kPanel];   // f16: the scale, or of integer scales the factor
  std::uint16_t minimum[kPanel];  // the same of minimums
  std::uint8_t scales[kQuantChunk / 16][kPanel];
  std::uint8_t minimums[kChunkBlocks][kPanel];
};

/// 32 codes in 16 bytes: the low halves are the first 16.
void open_halves(std::uint8_t* codes, const std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = q[i] & 15;
    codes[i + 16] = q[i] >> 4;
  }
}

/// Bit i of `high` becomes bit 4 of code i: eight codes at a time, in the bytes of a word.
void open_fifth_bit(std::uint8_t* codes, const std::uint8_t* high) {
  constexpr std::uint64_t kBitOfByte = 0x8040201008040201, kTopBits = 0x8080808080808080;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t bits = std::uint64_t{high[i]} * 0x0101010101010101 & kBitOfByte;
    const std::uint64_t fifth = (bits | ((bits & ~kTopBits) + ~kTopBits)) & kTopBits;  // of bytes that are not zero
    std::uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, sizeof(eight));
    eight |= fifth >> 3;
    std::memcpy(codes + 8 * i, &eight, sizeof(eight));
  }
}

void open(OpenBlocks& out, std::int64_t n, const BlockQ8_0& block) {
  std::memcpy(out.codes[n], block.q, sizeof(block.q));
  out.factor[n] = block.d;
}
void open(OpenBlocks& out, std::int64_t n, const BlockQ4_0& block) {
  open_halves(out.codes[n], block.q);
  out.factor[n] = block.d;
}
void open(OpenBlocks& out, std::int64_t n, const BlockQ4_1& block) {
  open_halves(out.codes[n], block.q);
  out.factor[n] = block.d;
  out.minimum[n] = block.m;
}
void open(OpenBlocks& out, std::int64_t n, const BlockQ5_0& block) {
  open_halves(out.codes[n], block.q);
  open_fifth_bit(out.codes[n], block.high);
  out.factor[n] = block.d;
}
void open(OpenBlocks& out, std::int64_t n, const BlockQ5_1& block) {
  open_halves(out.codes[n], block.q);
  open_fifth_bit(out.codes[n], block.high);
  out.factor[n] = block.d;
  out.minimum[n] = block.m;
}

template <class Block>
void open_groups(OpenBlocks& out, std::int64_t n, const Block& block) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      const std::uint8_t both = block.q[pair * 32 + i];
      out.codes[n][pair * 64 + i] = both & 15;
      out.codes[n][pair * 64 + 32 + i] = both >> 4;
    }
  }
  const GroupScales groups = group_scales(block.scales);
  for (int g = 0; g < 8; ++g) {
    out.scales[g][n] = groups.scale[g];
    out.minimums[g][n] = groups.minimum[g];
  }
  out.factor[n] = block.d;
  out.minimum[n] = block.dmin;
}
void open(OpenBlocks& out, std::int64_t n, const BlockQ4_K& block) { open_groups(out, n, block); }
void open(OpenBlocks& out, std::int64_t n, const BlockQ5_K& block) {
  open_groups(out, n, block);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      out.codes[n][g * 32 + i] |= static_cast<std::uint8_t>((block.high[i] >> g & 1) << 4);
    }
  }
}
void open(OpenBlocks& out, std::int64_t n, const BlockQ6_K& block) {
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      std::uint8_t* codes = out.codes[n] + half * 128 + quarter * 32;
      const std::uint8_t* low = block.low + half * 64 + quarter % 2 * 32;
      const std::uint8_t* high = block.high + half * 32;
      for (int i = 0; i < 32; ++i) {
        codes[i] = static_cast<std::uint8_t>((low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4);
      }
    }
  }
  for (int g = 0; g < 16; ++g) out.scales[g][n] = static_cast<std::uint8_t>(block.scales[g]);
  out.factor[n] = block.d;
}

/// Calls fn with a block of the layout of `type`, one that has panels.
template <class Fn>
void with_block(BlockType type, const Fn& fn) {
  switch (type) {
    case BlockType::q4_0:
      return fn(BlockQ4_0{});
    case BlockType::q4_1:
      return fn(BlockQ4_1{});
    case BlockType::q5_0:
      return fn(BlockQ5_0{});
    case BlockType::q5_1:
      return fn(BlockQ5_1{});
    case BlockType::q4_k:
      return fn(BlockQ4_K{});
    case BlockType::q5_k:
      return fn(BlockQ5_K{});
    case BlockType::q6_k:
      return fn(BlockQ6_K{});
    default:
      return fn(BlockQ8_0{});
  }
}

/// Four codes, bits [shift, ...) of each under `mask`.
std::uint32_t codes_of(const OpenBlocks& from, std::int64_t n, std::int64_t input, int shift, std::uint32_t mask) {
  std::uint32_t word;
  std::memcpy(&word, from.codes[n] + input, sizeof(word));
  return word >> shift & mask;
}

void put(std::byte* out, std::int64_t index, std::uint32_t word) { std::memcpy(out + index * 4, &word, sizeof(word)); }

/// The quants of inputs [input, input + 32).
void write_codes(std::byte* out, const OpenBlocks& from, std::int64_t input, int bits) {
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

void write_chunk(std::byte* out, const OpenBlocks& from, const PanelFormat& format, std::int64_t inputs) {
  const auto write = [&](const void* values, std::int64_t bytes) {
    std::memcpy(out, values, static_cast<std::size_t>(bytes));
    out += bytes;
  };
  const auto write_factors = [&] {
    write(from.factor, sizeof(from.factor));
    if (format.codes.minimums) write(from.minimum, sizeof(from.minimum));
  };
  if (format.integer_scales) write_factors();
  for (std::int64_t input = 0; input < inputs; input += kQuantBlock) {
    write_codes(out, from, input, format.codes.bits);
    out += format.code_bytes();
    if (format.integer_scales) {
      const std::int64_t b = input / kQuantBlock;
      write(from.scales[b * format.groups()], format.groups() * kPanel);
      if (format.codes.minimums) write(from.minimums[b], kPanel);
    } else {
      write_factors();
    }
  }
}

template <class Block>
void pack_panel(std::byte* out, const BlockView& part, std::int64_t index) {
  const PanelFormat format = panel_format(part.type);
  const std::int64_t values = format_of(part.type).values;
  const std::int64_t first = index * kPanel, count = std::min(kPanel, part.rows - first);
  const std::byte* from = part.row(first);
  const std::int64_t stride = row_bytes(part.type, part.cols);
  OpenBlocks blocks{};
  for (std::int64_t c = 0; c < part.cols; c += values) {
    for (std::int64_t n = 0; n < count; ++n) {
      Block block;
      std::memcpy(&block, from + n * stride + c / values * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
      open(blocks, n, block);
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
      with_block(part.type, [&]<class Block>(Block) {
        pool.run(panels_of(count), count * part.cols,
                 [&](std::int64_t index, int) { pack_panel<Block>(panels + index * panel_bytes, piece, index); });
      });
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
