// SPDX-License-Identifier: Apache-2.0
// Cuts the source of a chat template into tokens, with Jinja's whitespace control: trim_blocks and lstrip_blocks are
// on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/errors.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {

/// A place in the source, from 1; columns count bytes.
struct Place {
  int line = 1;
  int column = 1;
};

enum class TokenKind : std::uint8_t {
  data,  // text outside of tags
  print_begin,
  print_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,
  end,
};

struct TemplateToken {
  TokenKind kind = TokenKind::end;
  std::string text;  // for a string: its value
  Place place;

  bool is(TokenKind wanted, std::string_view wanted_text) const { return kind == wanted && text == wanted_text; }
  bool is_name(std::string_view wanted) const { return is(TokenKind::name, wanted); }
  bool is_symbol(std::string_view wanted) const { return is(TokenKind::symbol, wanted); }
};

/// Names of variables, members and arguments; they are compared more often than they are counted.
inline constexpr std::size_t kMaxNameBytes = 200;

/// Something is wrong at a place of the template; what() names the template, too.
class PlacedError : public ModelError {
 public:
  PlacedError(const std::string& origin, Place where, std::string_view what);
  Place place;
  std::string reason;
};

/// Says where in the template something is wrong. Throws PlacedError.
[[noreturn]] void fail(const std::string& origin, Place place, std::string_view what);

/// Always ends with a token of the kind `end`.
std::vector<TemplateToken> tokenize(std::string_view source, const std::string& origin);

/// Python's idea of space in str.strip() and \s.
bool is_python_space(char32_t c);

// The tree of a chat template.

enum class ExpressionKind : std::uint8_t {
  literal,
  name,         // text
  member,       // [object], text
  subscript,    // [object, index]
  slice,        // [object, from, to, step], each but the object may be missing
  call,         // [callee, arguments...] and named
  filter,       // [value, arguments...] and named; text
  test,         // [value, arguments...] and named; text
  unary,        // [operand]; text is "not", "-" or "+"
  binary,       // [left, right]; text is an operator of arithmetic
  logic,        // [left, right]; text is "and" or "or"
  comparison,   // [first, others...]; operators
  joined,       // [parts...] of a ~ b ~ c
  conditional,  // [condition, value, otherwise]; otherwise may be missing
  list,
  tuple,
  dict,  // [key, value, key, value, ...]
};

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  Place place;
  std::string text;
  Value literal;
  std::vector<ExpressionPtr> items;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread, spread_named;  // of a call: f(*spread, **spread_named); may be missing
  std::vector<std::string> operators;
  int depth = 1;  // depth of the tree below
};

enum class StatementKind : std::uint8_t {
  data,          // text
  print,         // value
  if_,           // value, body, otherwise
  for_,          // targets, value, condition (may be missing), body, otherwise
  set,           // targets, value
  set_block,     // targets, body, value: its filters, around the name kBlockText (may be missing)
  macro,         // text, parameters, body
  call,          // value: the call; parameters, body: the macro "caller" that it is given
  with,          // parameters, body
  scope,         // body
  filter_block,  // value: filters around the name kBlockText; body
  break_,
  continue_,
};

/// The name under which the filters of a block find the text of the block. No template can write it.
inline constexpr const char* kBlockText = " block";

struct Statement;
using StatementPtr = std::unique_ptr<const Statement>;
using Block = std::vector<StatementPtr>;

struct Target {
  std::string name;
  std::string member;  // for a namespace: set ns.member = ...
};

struct Statement {
  StatementKind kind = StatementKind::data;
  Place place;
  std::string text;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Target> targets;
  bool unpacks = false;       // the value is a sequence with one element for each target
  bool is_recursive = false;  // the loop's body may call "loop"
  // A macro whose body has these names takes what they stand for.
  bool takes_caller = false, takes_more = false, takes_more_named = false;  // caller, varargs, kwargs
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;            // with defaults, which may be missing
  Block body;
  Block otherwise;
};

// Tokens of a chat template -> tree. What is outside of the supported part of Jinja fails here by name.

/// The whole template. Throws ModelError with line and column.
Block parse_template(std::string_view source, const std::string& origin);

/// The one expression of a template that is nothing but "{{ expression }}". Throws PlacedError.
ExpressionPtr parse_expression(std::string_view source, const std::string& origin);

/// A position in a list of tokens, shared by the parsers of statements and expressions.
class TokenStream {
 public:
  TokenStream(std::vector<TemplateToken> tokens, const std::string& origin)
      : tokens_(std::move(tokens)), origin_(origin) {}

  const TemplateToken& current() const { return tokens_[at_]; }
  const TemplateToken& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  TemplateToken next();
  bool skip_name(std::string_view name);
  bool skip_symbol(std::string_view symbol);
  TemplateToken expect(TokenKind kind, std::string_view what);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  /// Writes a symbol over the token before the current one and goes back to it.
  void put_back_symbol(std::string_view symbol);
  [[noreturn]] void fail_at(Place place, std::string_view what) const { fail(origin_, place, what); }
  /// The place of the current token in the list, and whether a name stands anywhere from such a place on to here.
  std::size_t position() const { return at_; }
  bool has_name_since(std::size_t position, std::string_view name) const;
  /// Says that the current token does not belong here.
  [[noreturn]] void fail_unexpected(std::string_view wanted) const;

 private:
  std::vector<TemplateToken> tokens_;
  const std::string& origin_;
  std::size_t at_ = 0;
};

/// Parses expressions; the grammar and its precedences are Jinja's.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  ExpressionPtr expression();
  /// An expression or several with commas between them: a tuple. `with_conditional`: "a if b else c" may stand there.
  ExpressionPtr tuple(bool with_conditional = true);
  /// "a | b | c" around what is there, from the first "|" on.
  ExpressionPtr filters(ExpressionPtr value);

 private:
  using Node = std::unique_ptr<Expression>;
  Node make(ExpressionKind kind, Place place, std::string text = {});
  void add(Node& parent, ExpressionPtr child);
  ExpressionPtr done(Node node);

  ExpressionPtr conditional();
  ExpressionPtr logic_or();
  ExpressionPtr logic_and();
  ExpressionPtr logic_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr joined();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr parentheses();
  ExpressionPtr postfix(ExpressionPtr value, bool with_filters);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  void call_arguments(Node& call);

  TokenStream& in_;
  int nesting_ = 0;
};

}  // namespace baton::jinja
