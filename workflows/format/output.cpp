// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/output.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

#include "agents/tools/tool.h"
#include "engine/text/pattern.h"
#include "engine/text/schema/schema.h"

namespace baton {
namespace {

constexpr std::size_t kMaxGrammarNodes = 1u << 20;  // in all grammars; about 100 bytes and 1 microsecond each

/// The constraint with its kind; empty: there is none.
std::string key_of(const OutputSpec& output) {
  if (!output.texts.empty()) {
    std::string key = "enum";
    for (const std::string& text : output.texts) key += fmt::format(" {} {}", text.size(), text);
    return key;
  }
  if (!output.regex.empty()) return "regex " + output.regex;
  if (!output.grammar.empty()) return "grammar " + output.grammar;
  if (output.schema.empty() || !output.enforce) return "";
  return (output.free_blanks ? "free schema " : "schema ") + output.schema;
}

std::shared_ptr<const Grammar> compile(const OutputSpec& output) {
  if (!output.texts.empty()) return enum_grammar(output.texts);
  if (!output.regex.empty()) return regex_grammar(output.regex);
  if (!output.grammar.empty()) return gbnf_grammar(output.grammar);
  if (const std::string wrong = check_json_schema(output.schema); !wrong.empty()) throw ConstraintError(wrong);
  return schema_grammar(output.schema, output.free_blanks ? JsonBlanks::free : JsonBlanks::compact);
}

}  // namespace

std::shared_ptr<const Grammar> OutputGrammars::get(const OutputSpec& output) {
  const std::string key = key_of(output);
  if (key.empty()) return nullptr;
  const auto [found, added] = compiled_.try_emplace(key);
  auto& [grammar, error] = found->second;
  if (added) {
    try {
      if (nodes_ > kMaxGrammarNodes)
        throw ConstraintError(
            fmt::format("the constraints of all outputs have more than {} states together", kMaxGrammarNodes));
      grammar = compile(output);
      nodes_ += grammar->nodes();
    } catch (const ConstraintError& wrong) {
      error = wrong.what();
    }
  }
  if (grammar == nullptr) throw ConstraintError(error);
  return grammar;
}

namespace {

CheckedOutput check_pattern(const std::string& pattern, const std::string& output) {
  try {
    if (std::optional<std::string> answer = Pattern(pattern).last_answer(output)) return {std::move(*answer), {}};
    return {{}, fmt::format("the output does not match the pattern '{}'", pattern)};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

CheckedOutput check_schema(const std::string& schema, const std::string& output) {
  std::string problem = check_json(output, schema);
  if (problem.empty()) return {output, {}};
  if (const std::optional<std::string> block = last_code_block(output)) {
    problem = check_json(*block, schema);
    if (problem.empty()) return {*block, {}};
  }
  return {{}, "the output does not fit the schema: " + problem};
}

CheckedOutput check_grammar(const OutputSpec& spec, const Grammar& grammar, const std::string& output) {
  try {
    if (accepts(grammar, output)) return {output, {}};
    if (!spec.texts.empty()) return {{}, "the output is none of the texts of its enum"};
    if (!spec.regex.empty()) return {{}, fmt::format("the output does not match the regex '{}'", spec.regex)};
    return {{}, "the output is not a text of its grammar"};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

}  // namespace

CheckedOutput check_output(const OutputSpec& spec, const Grammar* grammar, const std::string& output) {
  CheckedOutput checked;
  if (!spec.schema.empty()) checked = check_schema(spec.schema, output);
  if (spec.schema.empty() && grammar != nullptr) checked = check_grammar(spec, *grammar, output);
  if (checked.problem.empty() && !spec.pattern.empty()) checked = check_pattern(spec.pattern, output);
  return checked;
}

}  // namespace baton
