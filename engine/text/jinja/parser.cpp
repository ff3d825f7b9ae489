// SPDX-License-Identifier: Apache-2.0
#include "engine/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "engine/text/jinja/library.h"

namespace baton::jinja {
namespace {

constexpr int kMaxBlockDepth = 60;
constexpr std::size_t kMaxParameters = 255;  // parameters of a macro

std::string shown(const TemplateToken& token) {
  return token.kind == TokenKind::end ? "the end of the template" : fmt::format("'{}'", token.text);
}

class StatementParser {
 public:
  explicit StatementParser(TokenStream in) : in_(std::move(in)), expressions_(in_) {}

  Block run() { return block({}); }

 private:
  using Names = std::initializer_list<std::string_view>;
  using Node = std::unique_ptr<Statement>;

  static Node make(StatementKind kind, Place place) {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->place = place;
    return node;
  }

  /// Parses statements up to a tag with one of the names, which stays the current token; without names, up to the end.
  Block block(Names ends) {
    if (++nesting_ > kMaxBlockDepth) in_.fail_at(in_.current().place, "blocks are nested too deeply");
    Block out;
    while (true) {
      const TemplateToken& token = in_.current();
      if (token.kind == TokenKind::end) {
        if (ends.size() != 0) in_.fail_unexpected(*ends.begin());
        break;
      }
      if (token.kind == TokenKind::block_begin) {
        in_.next();
        const TemplateToken& tag = in_.current();
        if (tag.kind == TokenKind::name && std::find(ends.begin(), ends.end(), tag.text) != ends.end()) break;
        out.push_back(statement());
        in_.expect(TokenKind::block_end, "the end of the tag");
      } else if (token.kind == TokenKind::print_begin) {
        Node node = make(StatementKind::print, in_.next().place);
        node->value = expressions_.tuple();
        in_.expect(TokenKind::print_end, "}}");
        out.push_back(std::move(node));
      } else {
        Node node = make(StatementKind::data, token.place);
        node->text = in_.expect(TokenKind::data, "text").text;
        out.push_back(std::move(node));
      }
    }
    --nesting_;
    return out;
  }

  /// Parses the rest of a tag, its body, and the name that ends the body.
  Block body(Names ends) {
    in_.expect(TokenKind::block_end, "the end of the tag");
    return block(ends);
  }
  Block body_to(std::string_view end) {
    Block out = body({end});
    in_.next();
    return out;
  }

  StatementPtr statement() {
    const TemplateToken tag = in_.expect(TokenKind::name, "the name of a tag");
    if (tag.text == "if") return if_statement(tag.place);
    if (tag.text == "for") return for_statement(tag.place);
    if (tag.text == "set") return set_statement(tag.place);
    if (tag.text == "macro") return macro(tag.place);
    if (tag.text == "call") return call(tag.place);
    if (tag.text == "with") return with(tag.place);
    if (tag.text == "break" || tag.text == "continue") return loop_control(tag);
    if (tag.text == "generation") {
      Node node = make(StatementKind::scope, tag.place);
      // break and continue cannot leave a loop around the block, since in Jinja the block is a function of its own.
      const int loops = std::exchange(loops_, 0);
      node->body = body_to("endgeneration");
      loops_ = loops;
      return node;
    }
    if (tag.text == "filter") {
      Node node = make(StatementKind::filter_block, tag.place);
      node->value = block_filters(tag.place);
      node->body = body_to("endfilter");
      return node;
    }
    in_.fail_at(tag.place, fmt::format("the tag '{}' is not supported", tag.text));
  }

  StatementPtr if_statement(Place place) {
    Node node = make(StatementKind::if_, place);
    node->value = expressions_.tuple(false);
    node->body = body({"endif", "else", "elif"});
    const TemplateToken end = in_.next();
    if (end.is_name("elif")) {
      if (++nesting_ > kMaxBlockDepth) in_.fail_at(end.place, "blocks are nested too deeply");
      node->otherwise.push_back(if_statement(end.place));
      --nesting_;
    } else if (end.is_name("else")) {
      node->otherwise = body_to("endif");
    }
    return node;
  }

  StatementPtr for_statement(Place place) {
    Node node = make(StatementKind::for_, place);
    read_targets(*node, false);
    in_.expect_name("in");
    node->value = expressions_.tuple(false);
    if (in_.skip_name("if")) node->condition = expressions_.expression();
    node->is_recursive = in_.skip_name("recursive");
    ++loops_;
    node->body = body({"endfor", "else"});
    --loops_;
    if (in_.next().is_name("else")) node->otherwise = body_to("endfor");
    return node;
  }

  StatementPtr set_statement(Place place) {
    Node node = make(StatementKind::set, place);
    read_targets(*node, true);
    if (in_.skip_symbol("=")) {
      node->value = expressions_.tuple();
      return node;
    }
    if (node->unpacks) in_.fail_unexpected("=");
    node->kind = StatementKind::set_block;
    if (in_.current().is_symbol("|")) node->value = expressions_.filters(block_text(place));
    node->body = body_to("endset");
    return node;
  }

  StatementPtr macro(Place place) {
    Node node = make(StatementKind::macro, place);
    node->text = in_.expect(TokenKind::name, "the name of the macro").text;
    in_.expect_symbol("(");
    read_parameters(*node);
    read_function(*node, "endmacro");
    return node;
  }

  /// Parses the body of a macro, or of a call block, which is one too.
  void read_function(Statement& macro, std::string_view end) {
    const std::size_t begin = in_.position();
    const int loops = std::exchange(loops_, 0);
    macro.body = body_to(end);
    loops_ = loops;
    macro.takes_caller = in_.has_name_since(begin, "caller");
    macro.takes_more = in_.has_name_since(begin, "varargs");
    macro.takes_more_named = in_.has_name_since(begin, "kwargs");
  }

  /// Parses the parameters of a macro, behind the "(".
  void read_parameters(Statement& macro) {
    while (!in_.skip_symbol(")")) {
      if (!macro.parameters.empty()) in_.expect_symbol(",");
      const TemplateToken name = in_.expect(TokenKind::name, "the name of a parameter");
      if (macro.parameters.size() == kMaxParameters)
        in_.fail_at(name.place, fmt::format("a macro with more than {} parameters", kMaxParameters));
      const bool defaults_began = !macro.parameters.empty() && macro.parameters.back().second != nullptr;
      ExpressionPtr fallback;
      if (in_.skip_symbol("=")) {
        fallback = expressions_.expression();
      } else if (defaults_began) {
        in_.fail_at(name.place, "a parameter without default after one with a default");
      }
      macro.parameters.emplace_back(name.text, std::move(fallback));
    }
  }

  StatementPtr call(Place place) {
    Node node = make(StatementKind::call, place);
    node->text = "caller";
    if (in_.skip_symbol("(")) read_parameters(*node);
    const Place callee = in_.current().place;
    node->value = expressions_.expression();
    if (node->value->kind != ExpressionKind::call) in_.fail_at(callee, "expected a call");
    read_function(*node, "endcall");
    return node;
  }

  StatementPtr with(Place place) {
    Node node = make(StatementKind::with, place);
    while (in_.current().kind != TokenKind::block_end) {
      if (!node->parameters.empty()) in_.expect_symbol(",");
      const std::string name = in_.expect(TokenKind::name, "the name of a variable").text;
      in_.expect_symbol("=");
      node->parameters.emplace_back(name, expressions_.expression());
    }
    node->body = body_to("endwith");
    return node;
  }

  StatementPtr loop_control(const TemplateToken& tag) {
    if (loops_ == 0) in_.fail_at(tag.place, fmt::format("'{}' outside of a loop", tag.text));
    return make(tag.text == "break" ? StatementKind::break_ : StatementKind::continue_, tag.place);
  }

  /// Parses a target: a | a.b | a, b | (a, b).
  void read_targets(Statement& statement, bool with_members) {
    const bool parentheses = in_.skip_symbol("(");
    do {
      if (!statement.targets.empty()) {
        statement.unpacks = true;
        if (in_.current().kind != TokenKind::name || in_.current().is_name("in")) break;
      }
      Target target{in_.expect(TokenKind::name, "the name of a variable").text, ""};
      if (with_members && in_.skip_symbol(".")) {
        target.member = in_.expect(TokenKind::name, "the name of a member").text;
      }
      statement.targets.push_back(std::move(target));
    } while (in_.skip_symbol(","));
    if (parentheses) in_.expect_symbol(")");
  }

  static ExpressionPtr block_text(Place place) {
    auto name = std::make_unique<Expression>();
    name->kind = ExpressionKind::name;
    name->place = place;
    name->text = kBlockText;
    return name;
  }

  /// Parses "filter a | b". The first name has no "|" before it and is parsed separately.
  ExpressionPtr block_filters(Place place) {
    in_.put_back_symbol("|");
    return expressions_.filters(block_text(place));
  }

  TokenStream in_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

TemplateToken TokenStream::next() {
  TemplateToken token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

bool TokenStream::skip_symbol(std::string_view symbol) {
  if (!current().is_symbol(symbol)) return false;
  next();
  return true;
}

TemplateToken TokenStream::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail_unexpected(what);
  return next();
}

void TokenStream::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail_unexpected(fmt::format("'{}'", symbol));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected(fmt::format("'{}'", name));
}

bool TokenStream::has_name_since(std::size_t position, std::string_view name) const {
  return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(position),
                     tokens_.begin() + static_cast<std::ptrdiff_t>(at_),
                     [&](const TemplateToken& token) { return token.is_name(name); });
}

void TokenStream::put_back_symbol(std::string_view symbol) {
  tokens_[--at_] = {TokenKind::symbol, std::string(symbol), current().place};
}

void TokenStream::fail_unexpected(std::string_view wanted) const {
  fail_at(current().place, fmt::format("expected {}, found {}", wanted, shown(current())));
}

Block parse_template(std::string_view source, const std::string& origin) {
  return StatementParser(TokenStream(tokenize(source, origin), origin)).run();
}

ExpressionPtr parse_expression(std::string_view source, const std::string& origin) {
  TokenStream in(tokenize(source, origin), origin);
  in.expect(TokenKind::print_begin, "an expression");
  ExpressionPtr out = ExpressionParser(in).expression();
  in.expect(TokenKind::print_end, "the end of the expression");
  in.expect(TokenKind::end, "the end of the expression");
  return out;
}

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
      const TemplateToken stars = in_.next();  // each may stand once, and nothing else behind "**dict"
      ExpressionPtr& place = stars.text == "*" ? call->spread : call->spread_named;
      if (place || call->spread_named) in_.fail_at(stars.place, "arguments are unpacked twice");
      place = expression();
      call->depth = std::max(call->depth, place->depth + 1);
      if (call->depth > kMaxTreeDepth) in_.fail_at(stars.place, "the expression is too deep");
    } else if (in_.current().kind == TokenKind::name && in_.after().is_symbol("=")) {
      const std::string name = in_.next().text;
      in_.next();
      ExpressionPtr value = expression();
      call->depth = std::max(call->depth, value->depth + 1);
      call->named.emplace_back(name, std::move(value));
    } else {
      if (!call->named.empty() || call->spread || call->spread_named) in_.fail_unexpected("a named argument");
      add(call, expression());
    }
  }
}

}  // namespace baton::jinja
