// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF, the notation of llama.cpp: `name ::= alternatives`, one rule behind the other.
#include <fmt/format.h>

#include <map>

#include "engine/text/constrain/character_reader.h"
#include "engine/text/constrain/grammar.h"

namespace baton {
namespace {

using namespace constrain;

constexpr std::size_t kMaxGbnfBytes = 65'536;
constexpr int kMaxNesting = 64;
constexpr std::int32_t kMaxRuleDepth = 256;  // of calls that are open at once
constexpr std::string_view kRoot = "root";

/// What follows a backslash, in a literal as in brackets.
CodePointSet escape(CharacterReader& reader) {
  const char32_t c = reader.take();
  char32_t value = 0;
  if (c == U'n')
    value = U'\n';
  else if (c == U'r')
    value = U'\r';
  else if (c == U't')
    value = U'\t';
  else if (c == U'x')
    value = reader.hexadecimal(2);
  else if (c == U'u')
    value = reader.hexadecimal(4);
  else if (c == U'U')
    value = reader.hexadecimal(8);
  else if (c == U'\\' || c == U'"' || c == U'[' || c == U']' || c == U'-' || c == U'^')
    value = c;
  else
    reader.fail(
        "this escape is not supported; expected one of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH "
        "\\UHHHHHHHH");
  return {{value, value}};
}

bool is_name(char32_t c) {
  return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9') || c == U'-' || c == U'_';
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : reader_(text, "the grammar", kMaxGbnfBytes) {}

  std::shared_ptr<const Grammar> read() {
    rule_of(std::string(kRoot));  // the first rule
    for (skip(true); !reader_.done(); skip(true)) read_rule();
    for (const auto& [name, rule] : names_) {
      if (rules_[static_cast<std::size_t>(rule)].body == nullptr)
        throw ConstraintError(fmt::format("the grammar has no rule '{}'", name));
    }
    return std::make_shared<const Grammar>(rules_, kMaxRuleDepth);
  }

 private:
  std::int32_t rule_of(const std::string& name) {
    const auto [found, added] = names_.try_emplace(name, static_cast<std::int32_t>(rules_.size()));
    if (added) rules_.push_back({name, nullptr});
    return found->second;
  }

  /// Skips blanks and comments, and ends of lines where the rule goes on behind them.
  void skip(bool lines) {
    while (!reader_.done()) {
      const char32_t c = reader_.peek();
      if (c == U'#') {
        while (!reader_.done() && reader_.peek() != U'\n') reader_.take();
      } else if (c == U' ' || c == U'\t' || c == U'\r' || (lines && c == U'\n')) {
        reader_.take();
      } else {
        return;
      }
    }
  }

  std::string name() {
    const std::size_t begin = reader_.position();
    while (is_name(reader_.peek())) reader_.take();
    if (reader_.position() == begin) reader_.fail("expected the name of a rule");
    return std::string(reader_.between(begin, reader_.position()));
  }

  void read_rule() {
    const std::string rule = name();
    const auto index = static_cast<std::size_t>(rule_of(rule));
    if (rules_[index].body != nullptr) reader_.fail(fmt::format("the rule '{}' is there twice", rule));
    skip(false);
    reader_.expect("::=");
    skip(true);
    ExpressionPtr body = alternatives(0);
    rules_[index].body = std::move(body);
    if (!reader_.done() && reader_.peek() != U'\n') reader_.fail("expected the end of the rule");
  }

  ExpressionPtr alternatives(int depth) {
    if (depth > kMaxNesting)
      reader_.fail(fmt::format("it is nested too deeply: expected at most {} levels", kMaxNesting));
    std::vector<ExpressionPtr> ways{alternative(depth)};
    while (reader_.take_if("|")) {
      skip(true);
      ways.push_back(alternative(depth));
    }
    return ways.size() == 1 ? ways[0] : choice(std::move(ways));
  }

  ExpressionPtr alternative(int depth) {
    std::vector<ExpressionPtr> parts;
    for (skip(depth > 0); !reader_.done(); skip(depth > 0)) {
      const char32_t c = reader_.peek();
      if (c == U'|' || c == U')' || c == U'\n') break;
      parts.push_back(repeated(depth));
    }
    return sequence(std::move(parts));
  }

  ExpressionPtr repeated(int depth) {
    const ExpressionPtr part = atom(depth);
    skip(false);
    ExpressionPtr whole = read_repetition(reader_, part);
    if (whole == part) return whole;
    skip(false);
    for (const char* sign : {"*", "+", "?", "{"}) {  // each would be a level of nesting
      if (reader_.looking_at(sign)) reader_.fail("expected one repetition behind a part, found two");
    }
    return whole;
  }

  ExpressionPtr atom(int depth) {
    if (reader_.take_if("\"")) return literal();
    if (reader_.take_if("[")) return characters(read_class(reader_, escape));
    if (reader_.take_if(".")) return characters(CodePointSet().complement());
    if (reader_.take_if("(")) {
      skip(true);
      ExpressionPtr inside = alternatives(depth + 1);
      reader_.expect(")");
      return inside;
    }
    if (is_name(reader_.peek())) return call(rule_of(name()));
    reader_.fail("expected a literal, brackets, a group or the name of a rule");
  }

  ExpressionPtr literal() {
    std::vector<ExpressionPtr> parts;
    while (!reader_.take_if("\"")) {
      if (reader_.done() || reader_.peek() == U'\n') reader_.fail("expected '\"' at the end of the literal");
      const bool escaped = reader_.take_if("\\");
      if (escaped) {
        parts.push_back(characters(escape(reader_)));
      } else {
        const char32_t c = reader_.take();
        parts.push_back(characters({{c, c}}));
      }
    }
    return sequence(std::move(parts));
  }

  CharacterReader reader_;
  std::vector<Rule> rules_;
  std::map<std::string, std::int32_t> names_;
};

}  // namespace

std::shared_ptr<const Grammar> gbnf_grammar(std::string_view gbnf) { return GbnfReader(gbnf).read(); }

}  // namespace baton
