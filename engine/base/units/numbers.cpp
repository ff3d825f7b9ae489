// SPDX-License-Identifier: Apache-2.0
#include "engine/base/units/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace baton {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 4> kDurations = {{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
constexpr std::array<Unit, 5> kSizes = {
    {{"B", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}}};

/// A number without sign and exponent, followed by a unit (`bare_unit` if by nothing). The product must be a whole
/// number.
template <std::size_t size>
std::optional<std::int64_t> parse_with_unit(std::string_view text, const std::array<Unit, size>& units,
                                            std::string_view bare_unit = {}) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, std::chars_format::fixed);
  if (digits == 0 || error != std::errc() || end != text.data() + digits) return std::nullopt;
  const std::string_view name = digits == text.size() ? bare_unit : text.substr(digits);
  for (const Unit& unit : units) {
    if (name != unit.name) continue;
    const double product = std::round(value * unit.factor * 1e6) / 1e6;  // 0.1 s is 100 ms in spite of binary fractions
    constexpr double kMaxValue = 1e15;
    if (product != std::floor(product) || product > kMaxValue) return std::nullopt;
    return static_cast<std::int64_t>(product);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text, std::string_view bare_unit) {
  const auto ms = parse_with_unit(text, kDurations, bare_unit);
  if (!ms) return std::nullopt;
  return std::chrono::milliseconds(*ms);
}

std::optional<std::int64_t> parse_size(std::string_view text) { return parse_with_unit(text, kSizes); }

}  // namespace baton
