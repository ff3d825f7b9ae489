// SPDX-License-Identifier: Apache-2.0
#include "engine/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

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
    if (in_.current().is_name("recursive")) in_.fail_at(in_.current().place, "recursive loops are not supported");
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
    while (!in_.skip_symbol(")")) {
      if (!node->parameters.empty()) in_.expect_symbol(",");
      const TemplateToken name = in_.expect(TokenKind::name, "the name of a parameter");
      if (node->parameters.size() == kMaxParameters)
        in_.fail_at(name.place, fmt::format("a macro with more than {} parameters", kMaxParameters));
      const bool defaults_began = !node->parameters.empty() && node->parameters.back().second != nullptr;
      ExpressionPtr fallback;
      if (in_.skip_symbol("=")) {
        fallback = expressions_.expression();
      } else if (defaults_began) {
        in_.fail_at(name.place, "a parameter without default after one with a default");
      }
      node->parameters.emplace_back(name.text, std::move(fallback));
    }
    const int loops = std::exchange(loops_, 0);
    node->body = body_to("endmacro");
    loops_ = loops;
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

}  // namespace baton::jinja
