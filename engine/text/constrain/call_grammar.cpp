// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/machine.h"

namespace baton {
namespace {

using namespace constrain;

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr const char* kAnyObject = R"({"type": "object"})";
constexpr int kMaxCounted = 16;             // calls of one answer; if more are allowed, the grammar does not count them
constexpr std::size_t kMaxHeldNames = 512;  // bytes of the names of tools that a text may not begin with
constexpr std::int32_t kMaxId = 64;         // characters

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

ExpressionPtr any_text() { return repeat(characters(CodePointSet().complement()), 0, kUnbounded); }

/// Blanks where JSON may have some: any, or in what is decoded the end of a line and an indentation, since a small
/// model may write nothing else.
enum class Blanks : std::uint8_t { any, line };
ExpressionPtr blanks(Blanks kind) {
  if (kind == Blanks::any) return repeat(characters({{U' ', U' '}, {U'\t', U'\n'}, {U'\r', U'\r'}}), 0, kUnbounded);
  constexpr std::int32_t kIndentation = 8;
  const ExpressionPtr end = maybe(choice({text("\n"), text("\r\n")}));
  return sequence({end, repeat(characters({{U' ', U' '}, {U'\t', U'\t'}}), 0, kIndentation)});
}

/// As it stands in the grammar of a schema.
ExpressionPtr call_blank() { return maybe(text(" ")); }

ExpressionPtr json_string(const std::string& value) { return text(OrderedJson(value).dump()); }

/// What may stand around bare calls.
ExpressionPtr block_beginning(Blanks kind) { return sequence({text("```"), maybe(text("json")), blanks(kind)}); }
ExpressionPtr list_beginning(Blanks kind) { return sequence({text("["), blanks(kind)}); }

/// The names as texts that may not be begun, cut so that all together are not too long for a machine.
ExpressionPtr beginnings_of(const std::vector<std::string>& names) {
  const auto bytes = [&](std::size_t length) {
    std::size_t sum = 0;
    for (const std::string& name : names) sum += std::min(name.size(), length);
    return sum;
  };
  std::size_t length = kMaxHeldNames;
  while (length > 1 && bytes(length) > kMaxHeldNames) --length;
  std::vector<ExpressionPtr> out;
  for (const std::string& name : names) {
    std::size_t end = std::min(length, name.size());
    while (end < name.size() && utf8::continues(name[end])) --end;
    out.push_back(text(std::string_view(name).substr(0, end)));
  }
  return choice(std::move(out));
}

/// The texts that begin as a call without a marker does: small models write calls so, whatever their template says. And
/// those that begin with an object whose first member has a line of its own: it could become a call, which is written
/// on one line.
CharacterMachine bare_texts(const CallSyntax& syntax, std::span<const ToolSchema> tools) {
  std::vector<std::string> names;
  for (const ToolSchema& tool : tools) names.push_back(OrderedJson(tool.name).dump());
  const ExpressionPtr any = blanks(Blanks::any);
  const ExpressionPtr in_lines = sequence({call_blank(), characters({{U'\t', U'\n'}, {U'\r', U'\r'}})});
  const ExpressionPtr named = sequence({any, json_string(syntax.name_key), any, text(":"), any, beginnings_of(names)});
  std::vector<ExpressionPtr> ways{sequence(
      {maybe(block_beginning(Blanks::any)), maybe(list_beginning(Blanks::any)), text("{"), choice({in_lines, named})})};
  if (!syntax.object && syntax.marker().empty()) {
    names.clear();
    for (const ToolSchema& tool : tools) names.push_back(tool.name + trimmed(syntax.named));
    ways.push_back(sequence({text(trimmed(syntax.first + syntax.open)), beginnings_of(names)}));
  }
  return CharacterMachine(sequence({blanks(Blanks::any), choice(std::move(ways)), any_text()}));
}

/// The markers that a text may not hold: special tokens are none of its characters.
std::vector<std::string> markers_of(const CallSyntax& syntax) {
  std::vector<std::string> out;
  const auto add = [&](const CallSyntax& one) {
    const std::string marker = one.marker();
    if (!marker.empty() && marker.find(kSpecialMark) == std::string::npos) out.push_back(marker);
  };
  add(syntax);
  for (const CallSyntax& one : syntax.also) add(one);
  return out;
}

/// Any text in which no marker stands, and which does not begin as a bare call of a tool does.
ExpressionPtr plain_text(const CallSyntax& syntax, std::span<const ToolSchema> tools, std::int32_t least = 0) {
  CharacterMachine all(repeat(characters(CodePointSet().complement()), least, kUnbounded));
  if (!syntax.text_open.empty()) return all.expression();  // its header tells it from calls
  for (const std::string& marker : markers_of(syntax))
    all = all.both(CharacterMachine(sequence({any_text(), text(marker), any_text()})).complement());
  const bool is_json = syntax.object || syntax.arguments.form == ValueNotation::Form::json;
  if (!tools.empty() && (is_json || syntax.marker().empty())) all = all.both(bare_texts(syntax, tools).complement());
  return all.expression();
}

ExpressionPtr call_id() {
  return repeat(characters({{U'a', U'z'}, {U'A', U'Z'}, {U'0', U'9'}, {U'_', U'_'}, {U'-', U'-'}}), 1, kMaxId);
}

ExpressionPtr named_piece(const std::string& piece) {
  std::vector<ExpressionPtr> parts;
  std::size_t at = 0;
  for (std::size_t id = piece.find(kCallId); id != std::string::npos; id = piece.find(kCallId, at)) {
    parts.push_back(text(std::string_view(piece).substr(at, id - at)));
    parts.push_back(call_id());
    at = id + 1;
  }
  parts.push_back(text(std::string_view(piece).substr(at)));
  return sequence(std::move(parts));
}

/// A call of any of the tools, whose arguments are in the same order, without `open` and `close`.
ExpressionPtr call_of(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                      std::span<const ExpressionPtr> arguments) {
  std::vector<ExpressionPtr> ways;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (syntax.object)
      ways.push_back(sequence({json_string(tools[i].name), text(","), call_blank(), json_string(syntax.arguments_key),
                               text(":"), call_blank(), arguments[i]}));
    else
      ways.push_back(sequence({text(tools[i].name), named_piece(syntax.named), arguments[i]}));
  }
  if (!syntax.object) return choice(std::move(ways));
  const auto id = [&] {
    return sequence({json_string(syntax.id_key), text(":"), call_blank(), text("\""), call_id(), text("\""), text(","),
                     call_blank()});
  };
  return sequence({text("{"), call_blank(), syntax.id_key.empty() ? sequence({}) : id(), json_string(syntax.name_key),
                   text(":"), call_blank(), choice(std::move(ways)), text("}")});
}

/// The object of a call, on one line: behind a call on lines of its own, small models end without a second one.
ExpressionPtr bare_call_of(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                           std::span<const ExpressionPtr> arguments) {
  const ExpressionPtr blank = call_blank();
  const ExpressionPtr colon = sequence({blank, text(":"), blank}), comma = sequence({blank, text(","), blank});
  std::vector<ExpressionPtr> ways;
  for (std::size_t i = 0; i < tools.size(); ++i)
    ways.push_back(
        sequence({json_string(tools[i].name), comma, json_string(syntax.arguments_key), colon, arguments[i]}));
  return sequence({text("{"), blank, json_string(syntax.name_key), colon, choice(std::move(ways)), blank, text("}")});
}

/// All answers, of the arguments of the tools.
class AnswersWithCalls {
 public:
  AnswersWithCalls(const CallSyntax& syntax, std::span<const ToolSchema> tools, const CallRules& rules)
      : syntax_(syntax), tools_(tools), rules_(rules) {}

  ExpressionPtr make(std::span<const ExpressionPtr> arguments, const SchemasInText::Share& share) const {
    std::vector<ExpressionPtr> ways;
    std::vector<ExpressionPtr> forms;
    const bool is_bare = syntax_.object && syntax_.marker().empty();
    if (!is_bare) forms.push_back(calls(syntax_, arguments, share));
    for (const CallSyntax& one : syntax_.also) forms.push_back(calls(one, arguments, share));
    const ExpressionPtr called = forms.size() == 1 ? forms[0] : choice(std::move(forms));
    if (is_bare || syntax_.marker().empty()) {
      if (!is_bare) ways.push_back(sequence({blanks(Blanks::line), called}));
      if (!rules_.needed) ways.push_back(text_alone());
    } else if (!syntax_.text_open.empty()) {
      const ExpressionPtr before = preamble();
      ways.push_back(rules_.text == TextBefore::forbidden  ? called
                     : rules_.text == TextBefore::required ? sequence({before, called})
                                                           : sequence({maybe(before), called}));
      if (!rules_.needed) ways.push_back(text_alone());
    } else if (rules_.text == TextBefore::allowed) {
      ways.push_back(sequence({plain_text(syntax_, tools_), rules_.needed ? called : maybe(called)}));
    } else {
      ways.push_back(rules_.text == TextBefore::forbidden ? called
                                                          : sequence({plain_text(syntax_, tools_, 1), called}));
      if (!rules_.needed) ways.push_back(text_alone());
    }
    const bool free = rules_.bare && rules_.text != TextBefore::required && syntax_.text_open.empty() &&
                      syntax_.arguments.form == ValueNotation::Form::json;
    if (is_bare || free) ways.push_back(bare_calls(arguments, share));
    return choice(std::move(ways));
  }

 private:
  ExpressionPtr text_alone() const { return sequence({text(syntax_.text_open), plain_text(syntax_, tools_)}); }
  ExpressionPtr preamble() const {
    return sequence({text(syntax_.preamble_open), any_text(), text(syntax_.preamble_close)});
  }
  ExpressionPtr repeated(const ExpressionPtr& one, const ExpressionPtr& between) const {
    const std::int32_t more = rules_.max_calls > kMaxCounted ? kUnbounded : rules_.max_calls - 1;
    return sequence({one, repeat(sequence({between, one}), 0, more)});
  }

  ExpressionPtr calls(const CallSyntax& syntax, std::span<const ExpressionPtr> arguments,
                      const SchemasInText::Share& share) const {
    const ExpressionPtr one =
        sequence({text(syntax.open), share("a call", call_of(syntax, tools_, arguments)), text(syntax.close)});
    const bool is_blank = trimmed(syntax.between).empty();
    const ExpressionPtr between = is_blank ? maybe(text(syntax.between)) : text(syntax.between);
    return sequence({text(syntax.first), syntax.several ? repeated(one, between) : one, text(syntax.last)});
  }

  ExpressionPtr bare_calls(std::span<const ExpressionPtr> arguments, const SchemasInText::Share& share) const {
    const ExpressionPtr json = share("a bare call", bare_call_of(syntax_, tools_, arguments));
    const ExpressionPtr comma = sequence({blanks(Blanks::line), text(","), blanks(Blanks::line)});
    const ExpressionPtr list =
        sequence({list_beginning(Blanks::line), repeated(json, comma), blanks(Blanks::line), text("]")});
    const ExpressionPtr calls = choice({repeated(json, blanks(Blanks::line)), list});
    const ExpressionPtr block = sequence({block_beginning(Blanks::line), calls, blanks(Blanks::line), text("```")});
    return sequence({blanks(Blanks::line), choice({calls, block})});
  }

  const CallSyntax& syntax_;
  std::span<const ToolSchema> tools_;
  const CallRules& rules_;
};

}  // namespace

std::string CallSyntax::marker() const {
  const std::string begin = trimmed(first + open);
  if (begin.starts_with(kSpecialMark)) return begin.substr(0, begin.find(kSpecialMark, 1) + 1);
  std::string out = begin.substr(0, begin.find_first_of(std::string(kBlanks) + kSpecialMark));
  while (out.ends_with('[') || out.ends_with('(')) out.pop_back();
  return out;
}

std::shared_ptr<const Grammar> call_grammar(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                                            const CallRules& rules) {
  SchemasInText all;
  for (const ToolSchema& tool : tools)
    all.schemas.push_back({fmt::format("tool '{}'", tool.name), tool.enforced ? tool.parameters : kAnyObject});
  all.outer = 1;
  if (!syntax.object) all.notation = syntax.arguments;
  const AnswersWithCalls answers(syntax, tools, rules);
  all.whole = [&](std::span<const ExpressionPtr> values, const SchemasInText::Share& share) {
    return answers.make(values, share);
  };
  return schema_grammar(all);
}

std::shared_ptr<const Grammar> text_grammar(const CallSyntax& syntax, std::span<const ToolSchema> tools) {
  const Rule rule{"the text", sequence({text(syntax.text_open), plain_text(syntax, tools)})};
  return std::make_shared<const Grammar>(std::span(&rule, 1));
}

}  // namespace baton
