// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

using namespace constrain;

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kJsonBlock = "```json";
constexpr const char* kAnyObject = R"({"type": "object"})";
constexpr int kMaxCounted = 16;  // calls of one answer; if more are allowed, the grammar does not count them

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

ExpressionPtr any_of_but(std::u32string_view excluded) {
  CodePointSet set;
  for (const char32_t c : excluded) set.add({c, c});
  return characters(set.complement());
}

std::u32string characters_of(const std::string& text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size(); at += utf8::at(text, at).bytes) out += utf8::at(text, at).value;
  return out;
}

/// Any text without the marker, whose first character occurs in it once, and which begins with `first` or with that
/// character. Such a character stands at the end of the text, or what follows it is a beginning of the marker and then
/// another character. Without a marker: any text that begins with `first`.
ExpressionPtr text_without(const std::u32string& marker, const ExpressionPtr& first) {
  if (marker.empty()) return maybe(sequence({first, repeat(characters(CodePointSet().complement()), 0, kUnbounded)}));
  if (marker.find(marker[0], 1) != std::u32string::npos)
    throw ConstraintError("the marker of a call begins with a character that it has twice");
  std::vector<ExpressionPtr> begun, left;  // a beginning of the marker; the same, and then what is not its next one
  std::string beginning;
  for (std::size_t i = 0; i + 1 < marker.size(); ++i) {
    utf8::append(beginning, marker[i]);
    begun.push_back(text(beginning));
    left.push_back(sequence({text(beginning), any_of_but(std::u32string{marker[i + 1], marker[0]})}));
  }
  const ExpressionPtr beginnings = repeat(choice(begun), 0, kUnbounded);
  const ExpressionPtr run = sequence({beginnings, choice(left)});
  const ExpressionPtr more = repeat(choice({any_of_but(marker.substr(0, 1)), run}), 0, kUnbounded);
  return sequence({maybe(sequence({choice({first, run}), more})), beginnings});
}

/// Any text that holds no marker, and begins neither with an object or a list of JSON nor with a block of it, blanks
/// aside: small models write calls so, whatever their template says. `blocks`: it may begin with a block of another
/// language.
ExpressionPtr plain_text(const CallSyntax& syntax, bool blocks) {
  const std::u32string marker = characters_of(syntax.marker());
  const std::u32string own = marker.substr(0, 1);
  std::vector<ExpressionPtr> firsts{any_of_but(U"{[` \t\r\n" + own)};
  for (std::size_t length = 1; length < (blocks ? kJsonBlock.size() : 1); ++length) {
    const std::u32string next = length < 3   ? U"`"
                                : length > 3 ? std::u32string{static_cast<char32_t>(kJsonBlock[length])}
                                             : U"j`{[ \t\r\n";
    firsts.push_back(sequence({text(kJsonBlock.substr(0, length)), any_of_but(next + own)}));
  }
  const CodePointSet blanks{{U' ', U' '}, {U'\t', U'\n'}, {U'\r', U'\r'}};
  return sequence({repeat(characters(blanks), 0, kUnbounded), text_without(marker, choice(firsts))});
}

/// As they stand in the grammar of a schema.
ExpressionPtr call_blank() { return maybe(text(" ")); }
ExpressionPtr json_string(const std::string& value) { return text(OrderedJson(value).dump()); }

/// A call of any of the tools, whose arguments are in the same order.
ExpressionPtr call_of(const CallSyntax& syntax, std::span<const ToolSchema> tools,
                      std::span<const ExpressionPtr> arguments) {
  std::vector<ExpressionPtr> ways;
  for (std::size_t i = 0; i < tools.size(); ++i)
    ways.push_back(sequence({json_string(tools[i].name), text(","), call_blank(), json_string(syntax.arguments_key),
                             text(":"), call_blank(), arguments[i]}));
  return sequence({text("{"), call_blank(), json_string(syntax.name_key), text(":"), call_blank(),
                   choice(std::move(ways)), text("}")});
}

}  // namespace

std::string CallSyntax::marker() const {
  std::string begin = trimmed(open);
  if (list && begin.ends_with('[')) begin.pop_back();
  return trimmed(begin);
}

std::shared_ptr<const Grammar> call_grammar(const CallSyntax& syntax, std::span<const ToolSchema> tools, int max_calls,
                                            bool with_text) {
  const bool several = syntax.list || !trimmed(syntax.close).empty();
  const ExpressionPtr before = with_text ? plain_text(syntax, true) : nullptr;
  SchemasInText whole;
  for (const ToolSchema& tool : tools)
    whole.schemas.push_back({fmt::format("tool '{}'", tool.name), tool.enforced ? tool.parameters : kAnyObject});
  whole.json = [&](std::span<const ExpressionPtr> values) { return call_of(syntax, tools, values); };
  whole.outer = 1;
  whole.around = [&](const ExpressionPtr& json) {
    const ExpressionPtr one = syntax.list ? json : sequence({text(syntax.open), json, text(syntax.close)});
    const ExpressionPtr between = syntax.list ? text(", ") : maybe(text("\n"));
    const std::int32_t more = max_calls > kMaxCounted ? kUnbounded : max_calls - 1;
    ExpressionPtr calls = several ? sequence({one, repeat(sequence({between, one}), 0, more)}) : one;
    if (syntax.list) calls = sequence({text(syntax.open), calls, text(syntax.close)});
    if (before == nullptr) return calls;
    const ExpressionPtr bare = sequence({json, repeat(sequence({text("\n"), json}), 0, more)});
    const ExpressionPtr block = sequence({text(kJsonBlock), text("\n"), bare, text("\n```")});
    if (syntax.marker().empty()) return choice({calls, block});
    return choice({sequence({before, calls}), bare, block});
  };
  return schema_grammar(whole);
}

std::shared_ptr<const Grammar> text_grammar(const CallSyntax& syntax, bool blocks) {
  const Rule rule{"the text", plain_text(syntax, blocks)};
  return std::make_shared<const Grammar>(std::span(&rule, 1));
}

}  // namespace baton
