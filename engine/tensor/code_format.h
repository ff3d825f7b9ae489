// SPDX-License-Identifier: Apache-2.0
// Block formats as products of integers see them: codes of a few bits, and scales that groups of codes share.
#pragma once

#include <type_traits>

#include "engine/tensor/block_types.h"

namespace baton {

struct CodeFormat {
  int bits = 8;           // 4, 5, 6: unsigned codes; 8: signed quants
  int offset = 0;         // quant = code - offset
  int group = 32;         // quants that share a scale: 32 or 16
  bool minimums = false;  // value = quant * scale + minimum
  bool operator==(const CodeFormat&) const = default;
};

struct ScaledCodes {
  CodeFormat codes;
  bool integer_scales = false;  // K formats: 8-bit integers, times an f16 factor for each 256 values
};

/// Calls fn with std::integral_constant<BlockType, type> and returns true, or returns false: a type that has no codes
/// with these scales.
template <class Fn>
constexpr bool with_code_type(BlockType type, const Fn& fn) {
  const auto call = [&]<BlockType kType>(std::integral_constant<BlockType, kType> constant) {
    fn(constant);
    return true;
  };
  switch (type) {
    case BlockType::q8_0:
      return call(std::integral_constant<BlockType, BlockType::q8_0>());
    case BlockType::q4_0:
      return call(std::integral_constant<BlockType, BlockType::q4_0>());
    case BlockType::q4_1:
      return call(std::integral_constant<BlockType, BlockType::q4_1>());
    case BlockType::q5_0:
      return call(std::integral_constant<BlockType, BlockType::q5_0>());
    case BlockType::q5_1:
      return call(std::integral_constant<BlockType, BlockType::q5_1>());
    case BlockType::q4_k:
      return call(std::integral_constant<BlockType, BlockType::q4_k>());
    case BlockType::q5_k:
      return call(std::integral_constant<BlockType, BlockType::q5_k>());
    case BlockType::q6_k:
      return call(std::integral_constant<BlockType, BlockType::q6_k>());
    default:
      return false;
  }
}

constexpr bool has_codes(BlockType type) {
  return with_code_type(type, [](auto) {});
}

/// `type` has codes.
constexpr ScaledCodes scaled_codes(BlockType type) {
  switch (type) {
    case BlockType::q4_0:
      return {{4, 8, 32, false}, false};
    case BlockType::q4_1:
      return {{4, 0, 32, true}, false};
    case BlockType::q5_0:
      return {{5, 16, 32, false}, false};
    case BlockType::q5_1:
      return {{5, 0, 32, true}, false};
    case BlockType::q4_k:
      return {{4, 0, 32, true}, true};
    case BlockType::q5_k:
      return {{5, 0, 32, true}, true};
    case BlockType::q6_k:
      return {{6, 32, 16, false}, true};
    default:
      return {{8, 0, 32, false}, false};
  }
}

}  // namespace baton
