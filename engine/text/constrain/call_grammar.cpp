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

/// References to definitions of the tool's own schema, which all schemas have in one place.
void rename_references(OrderedJson& schema, const std::string& tool) {
  constexpr std::string_view kDefinitions = "#/definitions/";
  if (schema.is_object() && schema.contains("$ref") && schema["$ref"].is_string()) {
    const auto& target = schema["$ref"].get_ref<const std::string&>();
    if (target.starts_with(kDefinitions))
      schema["$ref"] = fmt::format("{}{}.{}", kDefinitions, tool, target.substr(kDefinitions.size()));
  }
  for (OrderedJson& part : schema) {
    if (part.is_structured()) rename_references(part, tool);
  }
}

/// Here, so that an error names the tool.
void check_enforceable(const std::string& tool, OrderedJson parameters, const OrderedJson& definitions) {
  if (parameters.is_object()) parameters["definitions"] = definitions;
  try {
    schema_grammar(parameters.dump());
  } catch (const ConstraintError& error) {
    throw ConstraintError(fmt::format("tool '{}': {}", tool, error.what()));
  }
}

/// The schema of a call of any of the tools.
std::string schema_of_call(const CallSyntax& syntax, std::span<const ToolSchema> tools) {
  OrderedJson ways = OrderedJson::array(), definitions = OrderedJson::object();
  for (const ToolSchema& tool : tools) {
    JsonLimits limits;
    limits.unique_keys = true;
    try {
      read_json(tool.parameters, limits);
    } catch (const JsonError& error) {
      throw ConstraintError(fmt::format("tool '{}': {}", tool.name, error.what()));
    }
    OrderedJson parameters = OrderedJson::parse(tool.parameters);
    rename_references(parameters, tool.name);
    if (parameters.is_object() && parameters.contains("definitions")) {
      for (const auto& [name, one] : parameters["definitions"].items()) definitions[tool.name + "." + name] = one;
      parameters.erase("definitions");
    }
    check_enforceable(tool.name, parameters, definitions);
    ways.push_back({{"type", "object"},
                    {"properties", {{syntax.name_key, {{"const", tool.name}}}, {syntax.arguments_key, parameters}}},
                    {"required", {syntax.name_key, syntax.arguments_key}},
                    {"additionalProperties", false}});
  }
  OrderedJson schema = ways.size() == 1 ? ways[0] : OrderedJson{{"anyOf", ways}};
  schema["definitions"] = std::move(definitions);
  return schema.dump();
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
  return schema_grammar(schema_of_call(syntax, tools), [&](const ExpressionPtr& json) {
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
  });
}

std::shared_ptr<const Grammar> text_grammar(const CallSyntax& syntax, bool blocks) {
  const Rule rule{"the text", plain_text(syntax, blocks)};
  return std::make_shared<const Grammar>(std::span(&rule, 1));
}

}  // namespace baton
