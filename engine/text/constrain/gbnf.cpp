// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF, the notation of llama.cpp: `name ::= alternatives`, one rule behind the other.
#include "engine/text/constrain/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "engine/text/constrain/regex_reader.h"

namespace baton {
namespace {

using namespace constrain;

constexpr std::size_t kMaxGbnfBytes = 65'536;
constexpr std::size_t kMaxGbnfRules = 1024;
constexpr int kMaxNesting = 64;
constexpr std::int32_t kMaxRuleDepth = 256;  // calls that are open at once
constexpr std::string_view kRoot = "root";

/// Reads what follows a backslash, in a literal as in brackets.
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
    if (rules_.size() > kMaxGbnfRules)
      throw ConstraintError(fmt::format("it has {} rules; expected at most {}", rules_.size(), kMaxGbnfRules));
    return std::make_shared<const Grammar>(rules_, kMaxRuleDepth);
  }

 private:
  std::int32_t rule_of(const std::string& name) {
    const auto [found, added] = names_.try_emplace(name, static_cast<std::int32_t>(rules_.size()));
    if (added) rules_.push_back({name, nullptr});
    return found->second;
  }

  /// Skips blanks and comments, and ends of lines if the rule goes on behind them.
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

namespace {

using namespace constrain;
using Kind = GrammarExpression::Kind;

constexpr std::size_t kMaxWrittenBytes = std::size_t{4} << 20;

class GbnfWriter {
 public:
  std::string write(const Grammar& grammar) {
    std::string roots;
    for (std::size_t source = 0; source < grammar.sources().size(); ++source) {
      prefix_ = fmt::format("s{}", source);
      roots += (roots.empty() ? "" : " | ") + rule_name(0);
      const std::vector<Rule>& rules = grammar.sources()[source];
      for (std::size_t rule = 0; rule < rules.size(); ++rule) {
        const std::string body = text_of(*rules[rule].body);
        add(rule_name(static_cast<std::int32_t>(rule)), body);
      }
    }
    return fmt::format("root ::= {}\n{}", roots, out_);
  }

 private:
  std::string rule_name(std::int32_t rule) const { return fmt::format("{}-r{}", prefix_, rule); }

  void add(const std::string& name, const std::string& body) {
    out_ += fmt::format("{} ::= {}\n", name, body);
    if (out_.size() > kMaxWrittenBytes)
      throw ConstraintError(fmt::format("as GBNF it has more than {} MiB", kMaxWrittenBytes >> 20));
  }

  /// An expression that stands in a sequence as it is.
  std::string text_of(const GrammarExpression& expression) {
    switch (expression.kind) {
      case Kind::text:
        return literal(expression.text);
      case Kind::characters:
        return characters_of(expression.characters);
      case Kind::sequence: {
        std::string joined;
        for (const ExpressionPtr& part : expression.parts) joined += (joined.empty() ? "" : " ") + text_of(*part);
        return joined.empty() ? R"("")" : joined;
      }
      case Kind::choice: {
        if (expression.parts.empty()) throw ConstraintError("GBNF cannot say that nothing at all may follow");
        std::string joined;
        for (const ExpressionPtr& part : expression.parts) joined += (joined.empty() ? "" : " | ") + text_of(*part);
        return "(" + joined + ")";
      }
      case Kind::repeat:
        return repeat_of(expression);
      case Kind::members:
        return members_of(expression);
      case Kind::call:
        return rule_name(expression.rule);
      case Kind::machine:
        return machine_of(expression);
      case Kind::ahead:
      case Kind::behind:
        break;  // no grammar has them
    }
    return {};
  }

  /// A text of bounded length with escapes: characters, or longer parts. xgrammar (of vLLM and SGLang) takes 500 ms a
  /// token to count such choices, and none to count characters: so the runs of characters are bounded, each by itself.
  std::optional<std::string> runs_of(const GrammarExpression& expression) {
    constexpr std::int32_t kFewTimes = 8;
    const GrammarExpression& part = *expression.parts[0];
    if (part.kind != Kind::choice || expression.high == kUnbounded || expression.high <= kFewTimes) return std::nullopt;
    std::string plain, others;
    for (const ExpressionPtr& way : part.parts) {
      std::string& out = way->kind == Kind::characters && plain.empty() ? plain : others;
      out += (out.empty() ? "" : " | ") + text_of(*way);
    }
    if (plain.empty() || others.empty()) return std::nullopt;
    const std::string run = fmt::format("{}{{0,{}}}", plain, expression.high);
    const std::string rest = fmt::format("(({}) {})*", others, run);
    if (expression.low == 0) return run + " " + rest;
    return fmt::format("({}{{1,{}}} | ({}) {}) {}", plain, expression.high, others, run, rest);
  }

  std::string repeat_of(const GrammarExpression& expression) {
    if (std::optional<std::string> runs = runs_of(expression)) return *runs;
    const std::string part = "(" + text_of(*expression.parts[0]) + ")";
    const auto [low, high] = std::pair(expression.low, expression.high);
    if (high == kUnbounded) return part + (low == 0 ? "*" : low == 1 ? "+" : fmt::format("{{{},}}", low));
    if (high == 0) return R"("")";
    if (low == 0 && high == 1) return part + "?";
    return part + fmt::format("{{{},{}}}", low, high);
  }

  /// Two chains of rules from the last member to the first, as in GrammarEmitter: what may follow behind no member, and
  /// behind one.
  std::string members_of(const GrammarExpression& expression) {
    const std::string between = text_of(*expression.between);
    std::string none = R"("")", some = R"("")";
    if (expression.more) {
      const std::string more = text_of(*expression.more);
      some = fmt::format("({} {})*", between, more);
      none = fmt::format("({} {})?", more, some);
    }
    for (std::size_t i = expression.parts.size(); i-- > 0;) {
      const std::string member = text_of(*expression.parts[i]);
      const std::string name = fmt::format("{}-m{}", prefix_, ++members_), rest = name + "-rest";
      add(name, member);  // it stands in both chains, and so would all inside of it
      add(rest, some);
      const std::string part = name + " " + rest;
      const bool optional = expression.optional[i];
      none = optional ? fmt::format("({} | {})", part, none) : part;
      some = fmt::format("{} {}", between, part);
      if (optional) some = fmt::format("({} | {})", some, rest);
    }
    return none;
  }

  /// A rule for each state. GBNF cannot count the steps.
  std::string machine_of(const GrammarExpression& expression) {
    const std::string name = fmt::format("{}-a{}", prefix_, ++machines_);
    for (std::size_t i = 0; i < expression.states.size(); ++i) {
      const GrammarExpression::State& state = expression.states[i];
      std::string ways = state.ends ? R"("")" : "";
      for (const auto& [way, target] : state.ways)
        ways += fmt::format("{}{} {}-{}", ways.empty() ? "" : " | ", text_of(*way), name, target);
      add(fmt::format("{}-{}", name, i), ways);
    }
    return name + "-0";
  }

  /// Not \x: llama.cpp reads two digits behind it, and xgrammar (of vLLM and SGLang) as many as there are.
  static std::string escaped(char32_t c) {
    if (c == U'\n') return R"(\n)";
    if (c == U'\r') return R"(\r)";
    if (c == U'\t') return R"(\t)";
    const bool plain = c >= 0x20 && c < 0x7F && std::u32string_view(U"\"\\[]-^").find(c) == std::u32string_view::npos;
    if (plain) return std::string(1, static_cast<char>(c));
    return c <= 0xFFFF ? fmt::format("\\u{:04X}", static_cast<std::uint32_t>(c))
                       : fmt::format("\\U{:08X}", static_cast<std::uint32_t>(c));
  }

  static std::string literal(std::string_view bytes) {
    std::string out = "\"";
    for (const char byte : bytes) {
      if (byte == kSpecialMark) continue;  // servers compare the spelling of special tokens
      out += static_cast<unsigned char>(byte) < 0x80 ? escaped(static_cast<char32_t>(byte)) : std::string(1, byte);
    }
    return out + "\"";
  }

  static std::string characters_of(const CodePointSet& set) {
    if (set.empty()) throw ConstraintError("GBNF cannot say that no character fits");
    std::string out = "[";
    for (const CodePointRange& range : set.ranges()) {
      out += escaped(range.low);
      if (range.high > range.low) out += "-" + escaped(range.high);
    }
    return out + "]";
  }

  std::string prefix_;
  std::string out_;
  int members_ = 0;
  int machines_ = 0;
};

}  // namespace

std::string gbnf_of(const Grammar& grammar) { return GbnfWriter().write(grammar); }

}  // namespace baton
