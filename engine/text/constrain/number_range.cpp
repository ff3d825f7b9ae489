// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <string>

namespace baton::constrain {
namespace {

constexpr int kFraction = 15;                    // digits behind the point
constexpr double kMaxWhole = 999999999999999.0;  // every reader of JSON holds it exactly

ExpressionPtr digit(char low, char high) {
  return characters({{static_cast<char32_t>(low), static_cast<char32_t>(high)}});
}
ExpressionPtr any_digits(std::size_t low, std::size_t high) {
  return repeat(digit('0', '9'), static_cast<std::int32_t>(low), static_cast<std::int32_t>(high));
}

/// Numbers with a fixed number of digits before the point, between two others of the same form: "0012" + "500" is
/// 12.5. Fewer digits behind the point stand for zeros.
class DigitRange {
 public:
  DigitRange(std::string low, std::string high, std::size_t whole)
      : low_(std::move(low)), high_(std::move(high)), whole_(whole) {}

  ExpressionPtr expression() const { return from(0, true, true); }

 private:
  /// What may follow the first `at` digits, which are those of the bounds or lie between them.
  ExpressionPtr from(std::size_t at, bool at_low, bool at_high) const {
    at_low = at_low && low_.find_first_not_of('0', at) != std::string::npos;
    at_high = at_high && high_.find_first_not_of('9', at) != std::string::npos;
    if (at < whole_) {
      if (!at_low && !at_high) return sequence({any_digits(whole_ - at, whole_ - at), from(whole_, false, false)});
      return digits(at, at_low, at_high);
    }
    if (at > whole_) {
      const ExpressionPtr more = at == low_.size() ? sequence({}) : fraction(at, at_low, at_high);
      return at_low ? more : maybe(more);
    }
    if (low_.size() == whole_) return sequence({});
    const ExpressionPtr more = sequence({text("."), fraction(at, at_low, at_high)});
    return at_low ? more : maybe(more);
  }

  ExpressionPtr fraction(std::size_t at, bool at_low, bool at_high) const {
    if (!at_low && !at_high) return any_digits(1, low_.size() - at);
    return digits(at, at_low, at_high);
  }

  ExpressionPtr digits(std::size_t at, bool at_low, bool at_high) const {
    const char low = at_low ? low_[at] : '0', high = at_high ? high_[at] : '9';
    std::vector<ExpressionPtr> ways;
    if (low == high) {
      ways.push_back(sequence({digit(low, low), from(at + 1, at_low, at_high)}));
    } else {
      const auto inside_low = static_cast<char>(low + (at_low ? 1 : 0));
      const auto inside_high = static_cast<char>(high - (at_high ? 1 : 0));
      if (at_low) ways.push_back(sequence({digit(low, low), from(at + 1, true, false)}));
      if (inside_low <= inside_high)
        ways.push_back(sequence({digit(inside_low, inside_high), from(at + 1, false, false)}));
      if (at_high) ways.push_back(sequence({digit(high, high), from(at + 1, false, true)}));
    }
    return choice(std::move(ways));
  }

  std::string low_, high_;
  std::size_t whole_;
};

/// A number that is not negative, as digits: whole ones without leading zeros, then those of the fraction.
struct Digits {
  std::string whole, fraction;
};

/// The numbers from `low` to `high`, neither of which is negative and which have equally many digits of fraction.
ExpressionPtr magnitudes(const Digits& low, const Digits& high) {
  std::vector<ExpressionPtr> ways;
  std::size_t begin = low.whole.size() + 1, end = high.whole.size();  // digits of which all whole numbers are inside
  if (begin < end) {
    std::vector<ExpressionPtr> any{digit('1', '9'), any_digits(begin - 1, end - 2)};
    if (!low.fraction.empty()) any.push_back(maybe(sequence({text("."), any_digits(1, low.fraction.size())})));
    ways.push_back(sequence(std::move(any)));
  }
  for (const std::size_t whole : std::set<std::size_t>{low.whole.size(), high.whole.size()}) {
    const bool first = whole == low.whole.size(), last = whole == high.whole.size();
    std::string least = low.whole + low.fraction, most = high.whole + high.fraction;
    if (!first) least = "1" + std::string(whole - 1 + low.fraction.size(), '0');
    if (!last) most = std::string(whole + low.fraction.size(), '9');
    if (least <= most) ways.push_back(DigitRange(std::move(least), std::move(most), whole).expression());
  }
  return choice(std::move(ways));
}

ExpressionPtr negative(ExpressionPtr magnitude) { return sequence({text("-"), std::move(magnitude)}); }

/// A bound as a number with kFraction digits: as it is written in the schema, or the nearest that fulfils it. The check
/// reads numbers as doubles, and rounding to doubles keeps their order.
Digits digits_of(double bound, bool lower) {
  std::string out;
  const auto value = [&] {
    double read = 0.0;
    std::from_chars(out.data(), out.data() + out.size(), read);
    return read;
  };
  for (int digits = 0; digits <= kFraction; ++digits) {
    out = fmt::format("{:.{}f}", bound, digits);
    if (digits > 0 && value() == bound) break;
  }
  out.append(static_cast<std::size_t>(kFraction) - (out.size() - out.find('.') - 1), '0');
  const auto fulfils = [&] { return lower ? value() >= bound : value() <= bound; };
  while (!fulfils()) {  // once: the printed number is at most half a unit of its last digit away
    const char end = lower ? '9' : '0';
    for (std::size_t at = out.size(); at-- > 0;) {
      if (out[at] == '.') continue;
      const bool carries = out[at] == end;
      out[at] = carries ? (lower ? '0' : '9') : static_cast<char>(out[at] + (lower ? 1 : -1));
      if (!carries) break;
      if (at == 0) out.insert(out.begin(), '1');
    }
  }
  const std::size_t point = out.find('.');
  std::string whole = out.substr(0, point);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size() - 1));
  return {whole, out.substr(point + 1)};
}

ExpressionPtr nothing() { return choice({}); }

}  // namespace

ExpressionPtr integers(const NumberBounds& bounds) {
  double low = -kMaxWhole, high = kMaxWhole;
  if (bounds.minimum) low = std::max(low, std::ceil(*bounds.minimum));
  if (bounds.above) low = std::max(low, std::floor(*bounds.above) + 1);
  if (bounds.maximum) high = std::min(high, std::floor(*bounds.maximum));
  if (!(low <= high)) return nothing();
  const auto digits = [](double value) { return Digits{fmt::format("{:.0f}", std::abs(value)), ""}; };
  std::vector<ExpressionPtr> ways;
  if (high >= 0) ways.push_back(magnitudes(digits(std::max(low, 0.0)), digits(high)));
  if (low < 0) ways.push_back(negative(magnitudes(digits(std::min(high, -1.0)), digits(low))));
  return choice(std::move(ways));
}

ExpressionPtr numbers(const NumberBounds& bounds) {
  if (!bounds.any()) {
    const ExpressionPtr whole = choice({text("0"), sequence({digit('1', '9'), any_digits(0, kFraction - 1)})});
    const ExpressionPtr fraction = maybe(sequence({text("."), any_digits(1, kFraction)}));
    const ExpressionPtr exponent = maybe(sequence(
        {characters({{U'e', U'e'}, {U'E', U'E'}}), maybe(characters({{U'+', U'+'}, {U'-', U'-'}})), any_digits(1, 2)}));
    return sequence({maybe(text("-")), whole, fraction, exponent});
  }
  double low = -kMaxWhole, high = kMaxWhole;
  if (bounds.minimum) low = std::max(low, *bounds.minimum);
  if (bounds.above) {
    const double next = std::nextafter(*bounds.above, std::numeric_limits<double>::infinity());
    low = std::max(low, next);
  }
  if (bounds.maximum) high = std::min(high, *bounds.maximum);
  if (!(low <= high)) return nothing();
  std::vector<ExpressionPtr> ways;
  if (high >= 0) ways.push_back(magnitudes(digits_of(std::max(low, 0.0), true), digits_of(high, false)));
  if (low < 0) ways.push_back(negative(magnitudes(digits_of(std::max(-high, 0.0), true), digits_of(-low, false))));
  return choice(std::move(ways));
}

}  // namespace baton::constrain
