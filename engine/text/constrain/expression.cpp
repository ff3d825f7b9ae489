// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/constrain/machine.h"

namespace baton::constrain {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};
constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF};  // in 1, 2 and 3 bytes

/// Cuts a range where the number of bytes changes, and where the bytes behind a common beginning are not all of them.
void split(CodePointRange range, std::vector<ByteRanges>& out) {
  const auto [low, high] = range;
  for (const char32_t last : kLastOfLength) {
    if (low > last || high <= last) continue;
    split({low, last}, out);
    return split({last + 1, high}, out);
  }
  for (int bits = 6; bits <= 18 && high > 0x7F; bits += 6) {
    const char32_t tail = (char32_t{1} << bits) - 1;
    if ((low & ~tail) == (high & ~tail)) break;
    if ((low & tail) != 0) {
      split({low, low | tail}, out);
      return split({(low | tail) + 1, high}, out);
    }
    if ((high & tail) != tail) {
      split({low, (high & ~tail) - 1}, out);
      return split({high & ~tail, high}, out);
    }
  }
  std::string first, last;
  utf8::append(first, low);
  utf8::append(last, high);
  ByteRanges& ranges = out.emplace_back();
  ranges.count = static_cast<int>(first.size());
  for (std::size_t i = 0; i < first.size(); ++i)
    ranges.bytes[i] = {static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i])};
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) {
  for (const CodePointRange& range : ranges) add(range);
}

void CodePointSet::add(CodePointRange range) {
  range.high = std::min(range.high, kLast);
  if (range.low < kSurrogates.low && range.high >= kSurrogates.low) {
    add({range.low, kSurrogates.low - 1});
    range.low = kSurrogates.high + 1;
  } else if (range.low >= kSurrogates.low && range.low <= kSurrogates.high) {
    range.low = kSurrogates.high + 1;
  }
  if (range.low > range.high) return;
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.low,
                                      [](const CodePointRange& one, char32_t low) { return one.high + 1 < low; });
  auto last = first;
  for (; last != ranges_.end() && last->low <= range.high + 1; ++last)
    range = {std::min(range.low, last->low), std::max(range.high, last->high)};
  ranges_.insert(ranges_.erase(first, last), range);
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) add(range);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  char32_t from = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.low > from) out.add({from, range.low - 1});
    from = range.high + 1;
  }
  if (from <= kLast) out.add({from, kLast});
  return out;
}

CodePointSet CodePointSet::without(const CodePointSet& other) const {
  CodePointSet rest = complement();  // the complement of (not this, or other)
  rest.add(other);
  return rest.complement();
}

bool CodePointSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& range) { return range.low <= c && c <= range.high; });
}

std::vector<ByteRanges> utf8_ranges(const CodePointSet& characters) {
  std::vector<ByteRanges> out;
  for (const CodePointRange& range : characters.ranges()) split(range, out);
  return out;
}

namespace {

using Kind = GrammarExpression::Kind;

ExpressionPtr make(GrammarExpression expression) {
  return std::make_shared<const GrammarExpression>(std::move(expression));
}

struct Escape {
  char32_t character, letter;  // the letter stands behind a backslash
};
constexpr Escape kEscapes[] = {{U'"', U'"'},  {U'\\', U'\\'}, {U'\n', U'n'}, {U'\t', U't'},
                               {U'\r', U'r'}, {U'\b', U'b'},  {U'\f', U'f'}};

/// Control characters without a short escape are written \u00XX only if nothing else is meant, so that a model that
/// begins another \u is not led to one of them.
ExpressionPtr escaped(const CodePointSet& set) {
  static const CodePointSet& always = *new CodePointSet{{0, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}};
  const CodePointSet plain = set.without(always);
  std::vector<ExpressionPtr> ways;
  if (!plain.empty()) ways.push_back(characters(plain));
  CodePointSet letters;
  for (const Escape& escape : kEscapes) {
    if (set.contains(escape.character)) letters.add({escape.letter, escape.letter});
  }
  if (!letters.empty()) ways.push_back(sequence({text("\\"), characters(letters)}));
  if (ways.empty()) {
    for (char32_t c = 0; c <= 0x1F; ++c) {
      if (set.contains(c)) ways.push_back(text(fmt::format("\\u{:04x}", static_cast<unsigned>(c))));
    }
  }
  return ways.size() == 1 ? ways[0] : choice(std::move(ways));
}

ExpressionPtr escaped(std::string_view bytes) {
  std::vector<ExpressionPtr> parts;
  for (std::size_t at = 0; at < bytes.size();) {
    const utf8::CodePoint c = utf8::at(bytes, at);
    parts.push_back(escaped(CodePointSet{{c.value, c.value}}));
    at += c.bytes;
  }
  return sequence(std::move(parts));
}

}  // namespace

ExpressionPtr text(std::string_view bytes) {
  GrammarExpression out;
  out.kind = Kind::text;
  out.text = bytes;
  return make(std::move(out));
}

ExpressionPtr characters(CodePointSet set) {
  GrammarExpression out;
  out.kind = Kind::characters;
  out.characters = std::move(set);
  return make(std::move(out));
}

ExpressionPtr sequence(std::vector<ExpressionPtr> parts) {
  GrammarExpression out;
  out.kind = Kind::sequence;
  out.parts = std::move(parts);
  return make(std::move(out));
}

ExpressionPtr choice(std::vector<ExpressionPtr> parts) {
  GrammarExpression out;
  out.kind = Kind::choice;
  out.parts = std::move(parts);
  return make(std::move(out));
}

ExpressionPtr repeat(ExpressionPtr part, std::int32_t low, std::int32_t high) {
  GrammarExpression out;
  out.kind = Kind::repeat;
  out.parts.push_back(std::move(part));
  out.low = low;
  out.high = high;
  return make(std::move(out));
}

ExpressionPtr call(std::int32_t rule) {
  GrammarExpression out;
  out.kind = Kind::call;
  out.rule = rule;
  return make(std::move(out));
}

ExpressionPtr look_ahead(ExpressionPtr part, bool negated, bool at_begin) {
  GrammarExpression out;
  out.kind = Kind::ahead;
  out.parts.push_back(std::move(part));
  out.negated = negated;
  out.at_begin = at_begin;
  return make(std::move(out));
}

ExpressionPtr look_behind(CodePointSet set, bool negated) {
  GrammarExpression out;
  out.kind = Kind::behind;
  out.characters = std::move(set);
  out.negated = negated;
  return make(std::move(out));
}

ExpressionPtr without_looks(const ExpressionPtr& expression) {
  if (expression->kind == Kind::ahead || expression->kind == Kind::behind) return sequence({});
  GrammarExpression out = *expression;
  for (ExpressionPtr& part : out.parts) part = without_looks(part);
  return make(std::move(out));
}

ExpressionPtr members(Members all) {
  GrammarExpression out;
  out.kind = Kind::members;
  out.parts = std::move(all.parts);
  out.optional = std::move(all.optional);
  out.between = std::move(all.between);
  out.more = std::move(all.more);
  out.low = all.low;
  out.high = all.high;
  return make(std::move(out));
}

ExpressionPtr machine(std::vector<GrammarExpression::State> states, std::int32_t low, std::int32_t high) {
  GrammarExpression out;
  out.kind = Kind::machine;
  out.states = std::move(states);
  out.low = low;
  out.high = high;
  return make(std::move(out));
}

ExpressionPtr in_json_string(const ExpressionPtr& expression) {
  if (expression->kind == Kind::text) return escaped(expression->text);
  if (expression->kind == Kind::characters) return escaped(expression->characters);
  if (expression->kind == Kind::ahead || expression->kind == Kind::behind)
    throw ConstraintError("it asks for what stands around it");
  GrammarExpression out = *expression;
  for (ExpressionPtr& part : out.parts) part = in_json_string(part);
  return make(std::move(out));
}

namespace {

constexpr int kMaxWholeDigits = 20;
constexpr double kMaxWhole = 1e19;
constexpr long double kLeastInteger = -9223372036854775808.0L, kGreatestInteger = 18446744073709551615.0L;
constexpr long double kMaxListed = 512;  // multiples that are written out

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

/// A bound as a number with `fraction` digits behind the point: as it is written in the schema, or the nearest that
/// fulfils it. The check reads numbers as doubles, and rounding to doubles keeps their order.
Digits digits_of(double bound, bool lower, int fraction) {
  std::string out;
  const auto value = [&] {
    double read = 0.0;
    std::from_chars(out.data(), out.data() + out.size(), read);
    return read;
  };
  for (int digits = 0; digits <= fraction; ++digits) {
    out = fmt::format("{:.{}f}", bound, digits);
    if (digits > 0 && value() == bound) break;
  }
  out.append(static_cast<std::size_t>(fraction) - (out.size() - out.find('.') - 1), '0');
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

namespace {

struct WholeBounds {
  long double low, high;
};

WholeBounds whole_bounds(const NumberBounds& bounds) {
  WholeBounds out{kLeastInteger, kGreatestInteger};
  if (bounds.minimum) out.low = std::max(out.low, std::ceil(*bounds.minimum));
  if (bounds.above) out.low = std::max(out.low, std::floor(*bounds.above) + 1);
  if (bounds.maximum) out.high = std::min(out.high, std::floor(*bounds.maximum));
  if (bounds.below) out.high = std::min(out.high, std::ceil(*bounds.below) - 1);
  return out;
}

std::string whole_text(long double value) { return fmt::format("{:.0f}", value); }

ExpressionPtr whole_numbers(const WholeBounds& bounds) {
  if (!(bounds.low <= bounds.high)) return nothing();
  const auto digits = [](long double value) { return Digits{whole_text(std::abs(value)), ""}; };
  std::vector<ExpressionPtr> ways;
  if (bounds.high >= 0) ways.push_back(magnitudes(digits(std::max(bounds.low, 0.0L)), digits(bounds.high)));
  if (bounds.low < 0) ways.push_back(negative(magnitudes(digits(std::min(bounds.high, -1.0L)), digits(bounds.low))));
  return choice(std::move(ways));
}

/// Any number that a reader of JSON takes for a finite double.
ExpressionPtr any_number() {
  const auto count = static_cast<std::size_t>(kMaxFraction);
  const ExpressionPtr fraction = maybe(sequence({text("."), any_digits(1, count)}));
  const ExpressionPtr e = characters({{U'e', U'e'}, {U'E', U'E'}}), plus = maybe(text("+"));
  const ExpressionPtr whole = choice({text("0"), sequence({digit('1', '9'), any_digits(0, kMaxWholeDigits - 1)})});
  const ExpressionPtr short_exponent =
      maybe(sequence({e, maybe(characters({{U'+', U'+'}, {U'-', U'-'}})), any_digits(1, 2)}));
  const ExpressionPtr long_exponent = choice(
      {sequence({text("-"), choice({sequence({digit('1', '2'), any_digits(2, 2)}),
                                    sequence({text("3"), digit('0', '1'), any_digits(1, 1)}),
                                    sequence({text("32"), digit('0', '3')})})}),
       sequence(
           {plus, choice({sequence({digit('1', '2'), any_digits(2, 2)}), sequence({text("30"), digit('0', '7')})})})});
  return sequence({maybe(text("-")), choice({sequence({whole, fraction, short_exponent}),
                                             sequence({digit('1', '9'), fraction, e, long_exponent})})});
}

/// The nearest double that fulfils the bound.
double as_double(long double bound, bool lower) {
  const auto near = static_cast<double>(bound);
  const bool fulfils = lower ? static_cast<long double>(near) >= bound : static_cast<long double>(near) <= bound;
  constexpr double kEnd = std::numeric_limits<double>::infinity();
  return fulfils ? near : std::nextafter(near, lower ? kEnd : -kEnd);
}

}  // namespace

ExpressionPtr integers(const NumberBounds& bounds) { return whole_numbers(whole_bounds(bounds)); }

ExpressionPtr multiples(const NumberBounds& bounds, std::int64_t divisor) {
  if (divisor == 1) return integers(bounds);
  WholeBounds within = whole_bounds(bounds);
  const auto by = static_cast<long double>(divisor);
  const long double first = std::ceil(within.low / by) * by;
  if (!(first <= within.high)) return nothing();
  if ((within.high - first) / by < kMaxListed) {
    std::vector<ExpressionPtr> ways;
    for (long double value = first; value <= within.high; value += by)
      ways.push_back(text(value == 0 ? "0" : whole_text(value)));
    return choice(std::move(ways));
  }
  std::string zeros;
  for (; divisor % 10 == 0; divisor /= 10) {  // what a ten divides ends with a zero
    zeros += '0';
    within = {std::ceil(within.low / 10), std::floor(within.high / 10)};
  }
  const auto divided = [&](const WholeBounds& part) {
    const ExpressionPtr all = whole_numbers(part);
    return divisor == 1 ? all : CharacterMachine(all).both(CharacterMachine::multiples(divisor)).expression();
  };
  if (zeros.empty()) return divided(within);
  return choice({within.low <= 0 && within.high >= 0 ? text("0") : nothing(),
                 sequence({divided({std::max(within.low, 1.0L), within.high}), text(zeros)}),
                 sequence({divided({within.low, std::min(within.high, -1.0L)}), text(zeros)})});
}

ExpressionPtr numbers(const NumberBounds& bounds, int fraction) {
  if (!bounds.any() && fraction == kMaxFraction) return any_number();
  double low = -kMaxWhole, high = kMaxWhole;
  constexpr double kEnd = std::numeric_limits<double>::infinity();
  if (bounds.minimum) low = std::max(low, as_double(*bounds.minimum, true));
  if (bounds.above) {
    const double least = as_double(*bounds.above, true);
    low = std::max(low, static_cast<long double>(least) > *bounds.above ? least : std::nextafter(least, kEnd));
  }
  if (bounds.maximum) high = std::min(high, as_double(*bounds.maximum, false));
  if (bounds.below) {
    const double most = as_double(*bounds.below, false);
    high = std::min(high, static_cast<long double>(most) < *bounds.below ? most : std::nextafter(most, -kEnd));
  }
  if (!(low <= high)) return nothing();
  const auto digits = [&](double bound, bool lower) { return digits_of(bound, lower, fraction); };
  std::vector<ExpressionPtr> ways;
  if (high >= 0) ways.push_back(magnitudes(digits(std::max(low, 0.0), true), digits(high, false)));
  if (low < 0)  // not -0
    ways.push_back(negative(magnitudes(digits(std::max(0.0, -high), true), digits(-low, false))));
  return choice(std::move(ways));
}

}  // namespace baton::constrain
