// SPDX-License-Identifier: Apache-2.0
// Element types and their conversions. Rounding to bf16 and f16 is to nearest, ties to even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace baton {

enum class DType : std::uint8_t { f32, bf16, f16 };

constexpr std::size_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }

constexpr std::string_view name_of(DType type) {
  return type == DType::f32 ? "f32" : type == DType::bf16 ? "bf16" : "f16";
}

constexpr float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

constexpr std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);  // keep NaN a NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(std::uint16_t bits);

}  // namespace baton
