// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/gbnf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace baton {
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
    }
    return {};
  }

  std::string repeat_of(const GrammarExpression& expression) {
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
    for (const char byte : bytes)
      out += static_cast<unsigned char>(byte) < 0x80 ? escaped(static_cast<char32_t>(byte)) : std::string(1, byte);
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
};

}  // namespace

std::string gbnf_of(const Grammar& grammar) { return GbnfWriter().write(grammar); }

}  // namespace baton
