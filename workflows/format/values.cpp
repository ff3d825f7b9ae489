// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/values.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/base/utf8.h"

namespace baton {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 4> kDurations = {{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
constexpr std::array<Unit, 5> kSizes = {
    {{"B", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}}};

/// A number without sign and exponent, followed by a unit; the product must be a whole number.
template <std::size_t size>
std::optional<std::int64_t> parse_with_unit(std::string_view text, const std::array<Unit, size>& units) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value, std::chars_format::fixed);
  if (digits == 0 || error != std::errc() || end != text.data() + digits) return std::nullopt;
  for (const Unit& unit : units) {
    if (text.substr(digits) != unit.name) continue;
    const double product = std::round(value * unit.factor * 1e6) / 1e6;  // 0.1 s is 100 ms in spite of binary fractions
    constexpr double kMaxValue = 1e15;
    if (product != std::floor(product) || product > kMaxValue) return std::nullopt;
    return static_cast<std::int64_t>(product);
  }
  return std::nullopt;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
             std::string_view::npos;
}

/// The value of what stands between ${ and }, which comes next in `out`, with an error there.
std::string value_of(std::string_view expression, Secrets secrets, Resolved& out) {
  const auto fail = [&](const char* code, std::string message) {
    out.code = code;
    out.error = std::move(message);
    return std::string();
  };
  if (expression.starts_with("secret:")) {
    if (secrets == Secrets::keep) return fmt::format("${{{}}}", expression);
    return fail("E0504", "a secret may only be used in the options of a tool and as the key of a model");
  }
  expression.remove_prefix(std::string_view("env:").size());
  const std::size_t colon = expression.find(":-");
  const std::string name(expression.substr(0, colon));
  if (!is_variable_name(name))
    return fail("E0503", fmt::format("'{}' is not the name of an environment variable", name));
  const char* value = std::getenv(name.c_str());
  const bool has_default = colon != std::string_view::npos;
  if (value != nullptr && (*value != '\0' || !has_default)) {
    std::string text = utf8::repaired(value);
    if (!text.empty()) out.values.push_back({out.text.size(), out.text.size() + text.size()});
    return text;
  }
  if (has_default) return std::string(expression.substr(colon + 2));
  return fail("E0503", fmt::format("environment variable '{}' is not set and has no default", name));
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto ms = parse_with_unit(text, kDurations);
  if (!ms) return std::nullopt;
  return std::chrono::milliseconds(*ms);
}

std::optional<std::int64_t> parse_size(std::string_view text) { return parse_with_unit(text, kSizes); }

Resolved resolve_environment(std::string_view text, Secrets secrets) {
  Resolved out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t dollar = text.find('$', at);
    out.text += text.substr(at, dollar - at);
    if (dollar == std::string_view::npos) break;
    const std::string_view rest = text.substr(dollar);
    if (rest.starts_with("$${")) {
      out.text += "${";
      out.changed = true;
      at = dollar + 3;
      continue;
    }
    const bool known = rest.starts_with("${env:") || rest.starts_with("${secret:");
    const std::size_t close = known ? text.find('}', dollar) : std::string_view::npos;
    if (known && close == std::string_view::npos) {
      out.code = "E0503";
      out.error = "'${' is not closed with '}'";
      return out;
    }
    if (!known) {
      out.text += '$';
      at = dollar + 1;
      continue;
    }
    out.text += value_of(text.substr(dollar + 2, close - dollar - 2), secrets, out);
    if (!out.error.empty()) return out;
    out.changed = true;
    at = close + 1;
  }
  return out;
}

}  // namespace baton
