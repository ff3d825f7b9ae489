// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/block_types.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace baton {
namespace {

constexpr std::int64_t kGoldenValues = 512;  // tests/golden/make_blocks.py

std::vector<BlockType> all_types() {
  std::vector<BlockType> types;
  for (std::int32_t i = 0; i < kBlockTypes; ++i) types.push_back(static_cast<BlockType>(i));
  return types;
}

std::string golden_bytes(std::string_view name) {
  const auto path = std::filesystem::path(BATON_TEST_DIR) / "golden" / "blocks" / (std::string(name) + ".bin");
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("every block format is read bit for bit as the package gguf reads it") {
  for (const BlockType type : all_types()) {
    const BlockFormat& format = format_of(type);
    INFO(format.name);
    const std::string golden = golden_bytes(format.name);
    const auto bytes = static_cast<std::size_t>(row_bytes(type, kGoldenValues));
    REQUIRE(golden.size() == bytes + kGoldenValues * sizeof(float));

    std::vector<float> values(kGoldenValues);
    dequantize(values, std::as_bytes(std::span(golden)).first(bytes), type);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float expected;
      std::memcpy(&expected, golden.data() + bytes + i * sizeof(float), sizeof(float));
      INFO("value " << i << ": " << values[i] << ", expected " << expected);
      if (std::bit_cast<std::uint32_t>(values[i]) != std::bit_cast<std::uint32_t>(expected)) FAIL();
    }
  }
}

TEST_CASE("a block of Q4_0 by hand: the low halves are the first 16 values") {
  BlockQ4_0 block{};
  block.d = 0x3800;  // 0.5
  for (int i = 0; i < 16; ++i) block.q[i] = static_cast<std::uint8_t>(i | (15 - i) << 4);
  std::vector<float> values(32);
  dequantize(values, std::as_bytes(std::span(&block, 1)), BlockType::q4_0);
  for (int i = 0; i < 16; ++i) {
    REQUIRE(values[static_cast<std::size_t>(i)] == 0.5f * static_cast<float>(i - 8));
    REQUIRE(values[static_cast<std::size_t>(16 + i)] == 0.5f * static_cast<float>(7 - i));
  }
}

TEST_CASE("block types are found by the number of the file") {
  std::set<std::uint32_t> ids;
  for (const BlockType type : all_types()) {
    ids.insert(format_of(type).id);
    REQUIRE(block_type_of(format_of(type).id) == type);
  }
  REQUIRE(ids.size() == kBlockTypes);
  for (const std::uint32_t id : {4u, 5u, 9u, 15u, 16u, 24u, 28u, 38u, 40u, 0xffffffffu}) REQUIRE(!block_type_of(id));
}

/// The bits of the largest f16, of infinity and of a NaN at each scale of a block; or exponents.
TEST_CASE("blocks with scales that are not finite are found") {
  for (const BlockType type : all_types()) {
    if (!is_quantized(type)) continue;
    const BlockFormat& format = format_of(type);
    INFO(format.name);
    const auto size = static_cast<std::size_t>(format.bytes);
    std::vector<std::byte> blocks(3 * size);
    const auto found = [&](std::size_t at, std::uint16_t bits, std::size_t bytes) {
      std::vector<std::byte> changed = blocks;
      std::memcpy(&changed[2 * size + at], &bits, bytes);
      return first_infinite_block(changed, type);
    };
    CHECK(first_infinite_block(blocks, type) == -1);
    for (const std::int16_t at : format.scales) {
      if (at < 0) continue;
      for (const std::uint16_t bits : {0x7bff, 0xfbff}) CHECK(found(static_cast<std::size_t>(at), bits, 2) == -1);
      for (const std::uint16_t bits : {0x7c00, 0xfc00, 0x7e01})
        CHECK(found(static_cast<std::size_t>(at), bits, 2) == 2);
    }
    if (type != BlockType::mxfp4) continue;
    CHECK(found(0, 252, 1) == -1);
    for (const std::uint16_t exponent : {253, 254, 255}) CHECK(found(0, exponent, 1) == 2);
  }
}

TEST_CASE("values of MXFP4 are finite up to the largest exponent") {
  BlockMXFP4 block{.e = 252, .q = {}};
  block.q[0] = 0xf7;  // 6 and -6
  std::vector<float> values(32);
  dequantize(values, std::as_bytes(std::span(&block, 1)), BlockType::mxfp4);
  CHECK(values[0] == 0x1.8p127f);
  CHECK(values[16] == -0x1.8p127f);
}

TEST_CASE("too few blocks for the values asked for are refused") {
  std::vector<std::byte> blocks(34);
  std::vector<float> values(64);
  REQUIRE_THROWS_AS(dequantize(values, blocks, BlockType::q8_0), std::invalid_argument);
  REQUIRE_THROWS_AS(dequantize(std::span(values).first(31), blocks, BlockType::q8_0), std::invalid_argument);
  REQUIRE_NOTHROW(dequantize(std::span(values).first(32), blocks, BlockType::q8_0));
}

}  // namespace
}  // namespace baton
