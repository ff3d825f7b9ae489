// SPDX-License-Identifier: Apache-2.0
// Sets of Unicode characters, and the UTF-8 byte ranges that stand for them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::constrain {

struct CodePointRange {
  char32_t low = 0, high = 0;  // inclusive
};

/// A set of code points as sorted ranges that do not touch. Surrogates are never members.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);

  void add(CodePointRange range);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet without(const CodePointSet& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

struct ByteRange {
  std::uint8_t low = 0, high = 0;  // inclusive
  auto operator<=>(const ByteRange&) const = default;
};

/// 1 to 4 byte ranges, one behind the other.
struct ByteRanges {
  std::array<ByteRange, 4> bytes;
  int count = 0;
};

/// The UTF-8 encodings of exactly the characters of the set.
std::vector<ByteRanges> utf8_ranges(const CodePointSet& characters);

// GrammarExpression: the one form that regular expressions, lists of texts, JSON Schemas and GBNF are read into, and
// that a Grammar is made of.

struct GrammarExpression;
/// Immutable; one expression may be a part of several.
using ExpressionPtr = std::shared_ptr<const GrammarExpression>;

inline constexpr std::int32_t kUnbounded = -1;

struct GrammarExpression {
  enum class Kind : std::uint8_t {
    text,        // exactly `text`
    characters,  // one of `characters`
    sequence,    // all of `parts`; of none: the empty text
    choice,      // one of `parts`; of none: nothing at all
    repeat,      // parts[0], `low` to `high` times
    members,     // `parts` in order, with `between` between them; the optional ones may be left out
    call,        // the rule with index `rule`
    machine,     // `states`, from the first one to one that ends, in `low` to `high` steps
    ahead,       // no text: what follows begins with parts[0], or with `negated` does not
    behind,      // no text: what stands in front ends with one of `characters`, or with `negated` does not
  };
  struct Interval {
    std::int32_t low = 0, high = 0;  // inclusive
  };
  struct State {
    std::vector<std::pair<ExpressionPtr, std::int32_t>> ways;  // one step each, and the state behind it
    bool ends = false;
    std::vector<Interval> counts;  // steps after which an end can still be reached; sorted
  };
  Kind kind = Kind::sequence;
  std::string text;
  CodePointSet characters;
  std::vector<ExpressionPtr> parts;
  std::int32_t low = 0, high = 0;  // for members: how many are there
  std::int32_t rule = 0;
  std::vector<State> states;
  std::vector<bool> optional;  // for members: one for each part
  ExpressionPtr between;       // for members
  ExpressionPtr more;          // for members: what may follow them, any number of times; null: nothing
  bool negated = false;        // for ahead and behind, which stand only in what a CharacterMachine is made of
  bool at_begin = false;       // for ahead: it stands at the beginning of the text
};

ExpressionPtr text(std::string_view bytes);
ExpressionPtr characters(CodePointSet set);
ExpressionPtr sequence(std::vector<ExpressionPtr> parts);
ExpressionPtr choice(std::vector<ExpressionPtr> parts);
ExpressionPtr repeat(ExpressionPtr part, std::int32_t low, std::int32_t high);
ExpressionPtr call(std::int32_t rule);
ExpressionPtr look_ahead(ExpressionPtr part, bool negated, bool at_begin = false);
ExpressionPtr look_behind(CodePointSet set, bool negated);
/// The expression without what it asks for around its parts: its texts, and others.
ExpressionPtr without_looks(const ExpressionPtr& expression);
inline ExpressionPtr maybe(ExpressionPtr part) { return repeat(std::move(part), 0, 1); }

/// The members of an object: each optional one may be left out, `between` stands between two that are there.
struct Members {
  std::vector<ExpressionPtr> parts;
  std::vector<bool> optional;
  ExpressionPtr between;
  ExpressionPtr more;  // null: there are no others
  std::int32_t low = 0, high = kUnbounded;
};
ExpressionPtr members(Members all);

/// `high` may be kUnbounded.
ExpressionPtr machine(std::vector<GrammarExpression::State> states, std::int32_t low, std::int32_t high);

/// What stands inside of a JSON string for a text of `expression`, which has no calls: each character in one way,
/// either as it is or as its shortest escape. Throws ConstraintError for one with `ahead` or `behind`.
ExpressionPtr in_json_string(const ExpressionPtr& expression);

/// One rule of a grammar. The first rule is the whole text.
struct Rule {
  std::string name;  // for messages
  ExpressionPtr body;
  bool nests = true;  // a call of it counts as one that is open
};

// Numbers of JSON between two bounds, as expressions of a grammar.

/// What a schema says of a number. A long double holds every integer of 64 bits and every double.
struct NumberBounds {
  std::optional<long double> minimum, maximum;
  std::optional<long double> above, below;  // the numbers themselves are not allowed

  bool any() const { return minimum || maximum || above || below; }
};

inline constexpr int kMaxFraction = 20;

/// Whole numbers of 64 bits, with a sign or without one, without a fraction. Without parts when there is none between
/// the bounds.
ExpressionPtr integers(const NumberBounds& bounds);

/// The same, of those that `divisor` (> 0) divides. Throws ConstraintError if they are too hard to tell.
ExpressionPtr multiples(const NumberBounds& bounds, std::int64_t divisor);

/// Numbers of at most 20 digits before the point and `fraction` (> 0) behind it. Without bounds and with all digits of
/// a fraction an exponent may follow.
ExpressionPtr numbers(const NumberBounds& bounds, int fraction = kMaxFraction);

}  // namespace baton::constrain
