// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/tensor/tensor.h"

namespace baton {
namespace {

TEST_CASE("bf16 rounds to nearest, ties to even") {
  REQUIRE(f32_to_bf16(1.0f) == 0x3f80);
  REQUIRE(f32_to_bf16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);  // a tie, down to even
  REQUIRE(f32_to_bf16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);  // a tie, up to even
  REQUIRE(f32_to_bf16(std::bit_cast<float>(0x3f808001u)) == 0x3f81);
  REQUIRE(f32_to_bf16(std::bit_cast<float>(0x3f807fffu)) == 0x3f80);
  REQUIRE(f32_to_bf16(-0.0f) == 0x8000);
  REQUIRE(f32_to_bf16(std::numeric_limits<float>::max()) == 0x7f80);  // rounds up to infinity
  REQUIRE(f32_to_bf16(std::numeric_limits<float>::infinity()) == 0x7f80);
  REQUIRE(std::isnan(bf16_to_f32(f32_to_bf16(std::nanf("")))));
  REQUIRE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));  // not to infinity
}

TEST_CASE("every bf16 survives the way to f32 and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value) && f32_to_bf16(value) != bits) FAIL(bits);
  }
  SUCCEED();
}

TEST_CASE("bf16 is the nearest of its neighbours") {
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0xbfffffffu);  // below 2: finite
    const std::uint16_t bits = f32_to_bf16(value);
    const double error = std::abs(static_cast<double>(bf16_to_f32(bits)) - static_cast<double>(value));
    for (const int step : {-1, 1}) {
      const float other = bf16_to_f32(static_cast<std::uint16_t>(bits + step));
      if (std::signbit(other) != std::signbit(value) || std::isnan(other)) continue;
      if (error > std::abs(static_cast<double>(other) - static_cast<double>(value))) FAIL(value);
    }
  }
  SUCCEED();
}

TEST_CASE("f16 to f32") {
  REQUIRE(f16_to_f32(0x3c00) == 1.0f);
  REQUIRE(f16_to_f32(0xc000) == -2.0f);
  REQUIRE(f16_to_f32(0x7bff) == 65504.0f);
  REQUIRE(f16_to_f32(0x0400) == 0x1p-14f);  // the least normal
  REQUIRE(f16_to_f32(0x03ff) == 0x1p-24f * 1023);
  REQUIRE(f16_to_f32(0x8001) == -0x1p-24f);
  REQUIRE(std::signbit(f16_to_f32(0x8000)));
  REQUIRE(f16_to_f32(0x7c00) == std::numeric_limits<float>::infinity());
  REQUIRE(std::isnan(f16_to_f32(0x7e00)));
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {  // by the definition
    const int exponent = static_cast<int>(bits >> 10);
    const double mantissa = bits & 0x3ff;
    const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(bits))) != value) FAIL(bits);
  }
}

TEST_CASE("views pick rows and columns") {
  std::vector<float> data(12);
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const TensorView view = view_of(data.data(), 3, 4);
  REQUIRE(view.f32(2)[1] == 9);
  const TensorView part = view.row_range(1, 3).col_range(2, 4);
  REQUIRE(part.rows == 2);
  REQUIRE(part.cols == 2);
  REQUIRE(part.stride == 4);
  REQUIRE(part.f32(0)[0] == 6);
  REQUIRE(part.f32(1)[1] == 11);
  const ConstTensorView read_only = part;
  REQUIRE(read_only.f32(1) == part.f32(1));
  std::vector<std::uint16_t> halves(6);
  const TensorView small{reinterpret_cast<std::byte*>(halves.data()), DType::bf16, 2, 3, 3};
  REQUIRE(small.row_range(1, 2).col_range(1, 3).data == reinterpret_cast<std::byte*>(&halves[4]));
}

TEST_CASE("a buffer gives its memory back once, to its owner") {
  struct Owner final : BufferOwner {
    void release(void* data, std::size_t bytes) noexcept override { released.emplace_back(data, bytes); }
    std::vector<std::pair<void*, std::size_t>> released;
  } owner;
  int a = 0, b = 0;
  {
    Buffer first(&owner, &a, 4);
    Buffer second(std::move(first));
    REQUIRE(first.data() == nullptr);
    REQUIRE(second.bytes() == 4);
    second = Buffer(&owner, &b, 8);  // gives back the first
    REQUIRE(owner.released == std::vector<std::pair<void*, std::size_t>>{{&a, 4}});
    Buffer& itself = second;
    second = std::move(itself);
    REQUIRE(second.data() == reinterpret_cast<std::byte*>(&b));
  }
  REQUIRE(owner.released == std::vector<std::pair<void*, std::size_t>>{{&a, 4}, {&b, 8}});
  Buffer empty;
  REQUIRE(empty.data() == nullptr);
}

}  // namespace
}  // namespace baton
