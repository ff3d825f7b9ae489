// SPDX-License-Identifier: Apache-2.0
// Expressions over named values, for the conditions of workflows: those of Jinja ("score >= 4 and 'done' in text"),
// read and evaluated as in chat templates, within the same bounds, but that what is undefined equals nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// What a name stands for.
struct NamedValue {
  enum class Kind : std::uint8_t { undefined, text, json, integer };
  Kind kind = Kind::undefined;
  std::string_view text;     // for text and json; valid until the next look-up
  std::int64_t integer = 0;  // for integer
};

/// A text is no expression, or the values do not fit it. what() has no place in it.
class ExpressionError : public std::runtime_error {
 public:
  ExpressionError(const std::string& reason, std::size_t where) : std::runtime_error(reason), byte(where) {}
  std::size_t byte;  // offset in the text of the expression
};

/// Immutable and safe from any thread.
class ValueExpression {
 public:
  /// Throws ExpressionError.
  explicit ValueExpression(std::string_view source);
  ~ValueExpression();
  ValueExpression(ValueExpression&&) noexcept;
  ValueExpression& operator=(ValueExpression&&) noexcept;

  /// A name that the expression reads, and the members of it that must exist: "scores" and "0" in answer.scores[0] > 3,
  /// none in answer.score is defined.
  struct Name {
    std::string name;
    std::vector<std::string> members;
    bool numbered = false;  // the first member is a number: an element of a list, not a name
    std::size_t byte = 0;   // offset in the text
  };
  /// In the order of the text; a name stands there each time that it is read.
  const std::vector<Name>& names() const;
  const std::string& source() const;

  /// Whether the expression is true for these values, in Jinja's sense. `value_of` is asked once for each name. Throws
  /// ExpressionError where the values do not fit (a text compared with a number, a member of an undefined value), and
  /// after about 0.2 s.
  bool holds(const std::function<NamedValue(const std::string& name)>& value_of) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace baton
