// SPDX-License-Identifier: Apache-2.0
// Tokens of a chat template -> tree. What is outside of the supported part of Jinja fails here by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/ast.h"

namespace baton::jinja {

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
  bool at_tuple_end() const;

  TokenStream& in_;
  int nesting_ = 0;
};

}  // namespace baton::jinja
