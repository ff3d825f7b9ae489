// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/text/jinja/library.h"
#include "engine/text/jinja/parser.h"

namespace baton::jinja {
namespace {

// Limits of the tree's depth, since the evaluator is recursive. Official templates stay below 20.
constexpr int kMaxTreeDepth = 200;
constexpr int kMaxNesting = 60;
constexpr std::size_t kMaxArguments = 255;  // arguments of a call

bool ends_tuple(const TemplateToken& token) {
  return token.kind == TokenKind::print_end || token.kind == TokenKind::block_end || token.is_symbol(")") ||
         token.is_name("recursive");
}

}  // namespace

ExpressionParser::Node ExpressionParser::make(ExpressionKind kind, Place place, std::string text) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->place = place;
  node->text = std::move(text);
  return node;
}

void ExpressionParser::add(Node& parent, ExpressionPtr child) {
  if (child) parent->depth = std::max(parent->depth, child->depth + 1);
  if (parent->depth > kMaxTreeDepth) in_.fail_at(parent->place, "the expression is too deep");
  parent->items.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::done(Node node) { return node; }

ExpressionPtr ExpressionParser::expression() {
  if (++nesting_ > kMaxNesting) in_.fail_at(in_.current().place, "the expression is too deep");
  ExpressionPtr out = conditional();
  --nesting_;
  return out;
}

ExpressionPtr ExpressionParser::tuple(bool with_conditional) {
  const Place place = in_.current().place;
  Node all = make(ExpressionKind::tuple, place);
  bool is_tuple = false;
  do {
    if (ends_tuple(in_.current())) break;
    if (all->items.size() == 1) is_tuple = true;
    add(all, with_conditional ? expression() : logic_or());
  } while (in_.skip_symbol(",") && (is_tuple = true));
  if (is_tuple) return done(std::move(all));
  if (all->items.empty()) in_.fail_unexpected("an expression");
  return std::move(all->items.front());
}

ExpressionPtr ExpressionParser::conditional() {
  ExpressionPtr value = logic_or();
  while (in_.current().is_name("if")) {
    Node node = make(ExpressionKind::conditional, in_.next().place);
    add(node, logic_or());
    add(node, std::move(value));
    if (in_.skip_name("else")) add(node, expression());
    value = done(std::move(node));
  }
  return value;
}

ExpressionPtr ExpressionParser::logic_or() {
  ExpressionPtr left = logic_and();
  while (in_.current().is_name("or")) {
    Node node = make(ExpressionKind::logic, in_.next().place, "or");
    add(node, std::move(left));
    add(node, logic_and());
    left = done(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::logic_and() {
  ExpressionPtr left = logic_not();
  while (in_.current().is_name("and")) {
    Node node = make(ExpressionKind::logic, in_.next().place, "and");
    add(node, std::move(left));
    add(node, logic_not());
    left = done(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::logic_not() {
  std::vector<Place> places;
  while (in_.current().is_name("not")) places.push_back(in_.next().place);
  ExpressionPtr value = comparison();
  for (; !places.empty(); places.pop_back()) {
    Node node = make(ExpressionKind::unary, places.back(), "not");
    add(node, std::move(value));
    value = done(std::move(node));
  }
  return value;
}

ExpressionPtr ExpressionParser::comparison() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", ">=", "<=", ">", "<"};
  ExpressionPtr first = sum();
  Node node = make(ExpressionKind::comparison, in_.current().place);
  while (true) {
    const TemplateToken& token = in_.current();
    const bool symbol = token.kind == TokenKind::symbol &&
                        std::find(kOperators.begin(), kOperators.end(), token.text) != kOperators.end();
    if (!symbol && !token.is_name("in") && !(token.is_name("not") && in_.after().is_name("in"))) break;
    if (node->items.empty()) add(node, std::move(first));
    node->operators.push_back(token.is_name("not") ? "not in" : token.text);
    if (in_.next().is_name("not")) in_.next();
    add(node, sum());
  }
  return node->items.empty() ? std::move(first) : done(std::move(node));
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = joined();
  while (in_.current().is_symbol("+") || in_.current().is_symbol("-")) {
    const TemplateToken token = in_.next();
    Node node = make(ExpressionKind::binary, token.place, token.text);
    add(node, std::move(left));
    add(node, joined());
    left = done(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::joined() {
  ExpressionPtr first = product();
  if (!in_.current().is_symbol("~")) return first;
  Node node = make(ExpressionKind::joined, in_.current().place);
  add(node, std::move(first));
  while (in_.skip_symbol("~")) add(node, product());
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  const auto here = [this](std::string_view symbol) { return in_.current().is_symbol(symbol); };
  while (here("*") || here("/") || here("//") || here("%")) {
    const TemplateToken token = in_.next();
    Node node = make(ExpressionKind::binary, token.place, token.text);
    add(node, std::move(left));
    add(node, power());
    left = done(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (in_.current().is_symbol("**")) {
    Node node = make(ExpressionKind::binary, in_.next().place, "**");
    add(node, std::move(left));
    add(node, unary(true));
    left = done(std::move(node));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (in_.current().is_symbol("-") || in_.current().is_symbol("+")) {
    if (++nesting_ > kMaxNesting) in_.fail_at(in_.current().place, "the expression is too deep");
    const TemplateToken token = in_.next();
    Node node = make(ExpressionKind::unary, token.place, token.text);
    add(node, unary(false));
    --nesting_;
    value = done(std::move(node));
  } else {
    value = primary();
  }
  return postfix(std::move(value), with_filters);
}

ExpressionPtr ExpressionParser::primary() {
  const TemplateToken& token = in_.current();
  const Place place = token.place;
  if (token.is_symbol("(")) return parentheses();
  if (token.is_symbol("[")) return list();
  if (token.is_symbol("{")) return dict();
  Node node = make(ExpressionKind::literal, place);
  if (token.kind == TokenKind::name) {
    if (token.text == "true" || token.text == "True") {
      node->literal = Value(true);
    } else if (token.text == "false" || token.text == "False") {
      node->literal = Value(false);
    } else if (token.text != "none" && token.text != "None") {
      node->kind = ExpressionKind::name;
      node->text = token.text;
    }
    in_.next();
  } else if (token.kind == TokenKind::string) {
    std::string text;
    while (in_.current().kind == TokenKind::string) text += in_.next().text;
    node->literal = Value(std::move(text));
  } else if (token.kind == TokenKind::integer) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
    if (error != std::errc()) in_.fail_at(place, "the number is too large");
    node->literal = Value(number);
    in_.next();
  } else if (token.kind == TokenKind::real) {
    double number = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
    if (error != std::errc()) in_.fail_at(place, "the number is too large");
    node->literal = Value(number);
    in_.next();
  } else {
    in_.fail_unexpected("an expression");
  }
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::parentheses() {
  const Place place = in_.next().place;
  if (in_.skip_symbol(")")) return done(make(ExpressionKind::tuple, place));
  ExpressionPtr inside = tuple();
  in_.expect_symbol(")");
  return inside;
}

ExpressionPtr ExpressionParser::list() {
  Node node = make(ExpressionKind::list, in_.next().place);
  while (!in_.skip_symbol("]")) {
    if (!node->items.empty()) {
      in_.expect_symbol(",");
      if (in_.skip_symbol("]")) break;
    }
    add(node, expression());
  }
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::dict() {
  Node node = make(ExpressionKind::dict, in_.next().place);
  while (!in_.skip_symbol("}")) {
    if (!node->items.empty()) {
      in_.expect_symbol(",");
      if (in_.skip_symbol("}")) break;
    }
    add(node, expression());
    in_.expect_symbol(":");
    add(node, expression());
  }
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value, bool with_filters) {
  // After the first filter or test only calls, filters and tests may follow, as in Jinja.
  bool filtered = false;
  while (true) {
    const TemplateToken& token = in_.current();
    if (!filtered && (token.is_symbol(".") || token.is_symbol("["))) {
      value = subscript(std::move(value));
    } else if (token.is_symbol("(")) {
      Node node = make(ExpressionKind::call, token.place);
      add(node, std::move(value));
      call_arguments(node);
      value = done(std::move(node));
    } else if (with_filters && token.is_symbol("|")) {
      filtered = true;
      value = filters(std::move(value));
    } else if (with_filters && token.is_name("is")) {
      filtered = true;
      value = test(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  while (in_.skip_symbol("|")) {
    const TemplateToken name = in_.expect(TokenKind::name, "the name of a filter");
    if (!is_filter(name.text)) in_.fail_at(name.place, fmt::format("the filter '{}' is not supported", name.text));
    Node node = make(ExpressionKind::filter, name.place, name.text);
    add(node, std::move(value));
    if (in_.current().is_symbol("(")) call_arguments(node);
    value = done(std::move(node));
  }
  return value;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const TemplateToken open = in_.next();
  if (open.text == ".") {
    if (in_.current().kind == TokenKind::integer) {
      Node node = make(ExpressionKind::subscript, open.place);
      add(node, std::move(value));
      add(node, primary());
      return done(std::move(node));
    }
    Node node = make(ExpressionKind::member, open.place, in_.expect(TokenKind::name, "the name of a member").text);
    add(node, std::move(value));
    return done(std::move(node));
  }
  Node node = make(ExpressionKind::subscript, open.place);
  add(node, std::move(value));
  const auto part_end = [this] { return in_.current().is_symbol(":") || in_.current().is_symbol("]"); };
  add(node, part_end() ? nullptr : expression());
  while (in_.skip_symbol(":")) {
    node->kind = ExpressionKind::slice;
    if (node->items.size() == 4) in_.fail_unexpected("]");
    add(node, part_end() ? nullptr : expression());
  }
  if (node->kind == ExpressionKind::slice) {
    node->items.resize(4);
  } else if (!node->items[1]) {
    in_.fail_unexpected("an index");
  }
  in_.expect_symbol("]");
  return done(std::move(node));
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  in_.next();
  const Place place = in_.current().place;
  const bool negated = in_.skip_name("not");
  const TemplateToken name = in_.expect(TokenKind::name, "the name of a test");
  if (!is_test(name.text)) in_.fail_at(name.place, fmt::format("the test '{}' is not supported", name.text));
  Node node = make(ExpressionKind::test, name.place, name.text);
  add(node, std::move(value));
  const TemplateToken& token = in_.current();
  const bool literal = token.kind == TokenKind::string || token.kind == TokenKind::integer ||
                       token.kind == TokenKind::real || token.is_symbol("[") || token.is_symbol("{");
  const bool word =
      token.kind == TokenKind::name && !token.is_name("else") && !token.is_name("or") && !token.is_name("and");
  if (token.is_symbol("(")) {
    call_arguments(node);
  } else if (word && token.is_name("is")) {
    in_.fail_at(token.place, "tests cannot be chained with 'is'");
  } else if (literal || word) {
    add(node, postfix(primary(), false));
  }
  if (!negated) return done(std::move(node));
  Node inverse = make(ExpressionKind::unary, place, "not");
  add(inverse, done(std::move(node)));
  return done(std::move(inverse));
}

void ExpressionParser::call_arguments(Node& call) {
  in_.expect_symbol("(");
  bool first = true;
  while (!in_.skip_symbol(")")) {
    if (!first) {
      in_.expect_symbol(",");
      if (in_.skip_symbol(")")) return;
    }
    first = false;
    if (call->items.size() + call->named.size() > kMaxArguments)
      in_.fail_at(call->place, fmt::format("a call with more than {} arguments", kMaxArguments));
    if (in_.current().is_symbol("*") || in_.current().is_symbol("**")) {
      in_.fail_at(in_.current().place, "unpacking arguments with * is not supported");
    }
    if (in_.current().kind == TokenKind::name && in_.after().is_symbol("=")) {
      const std::string name = in_.next().text;
      in_.next();
      ExpressionPtr value = expression();
      call->depth = std::max(call->depth, value->depth + 1);
      call->named.emplace_back(name, std::move(value));
    } else {
      if (!call->named.empty()) in_.fail_unexpected("a named argument");
      add(call, expression());
    }
  }
}

}  // namespace baton::jinja
