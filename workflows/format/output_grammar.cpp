// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/output_grammar.h"

#include <fmt/format.h>

#include "agents/json_check.h"

namespace baton {
namespace {

constexpr std::size_t kMaxGrammarNodes = 1u << 20;  // of all grammars; about 100 bytes and 1 microsecond each

/// The constraint with its kind; empty: there is none.
std::string key_of(const OutputSpec& output) {
  if (!output.texts.empty()) {
    std::string key = "enum";
    for (const std::string& text : output.texts) key += fmt::format(" {} {}", text.size(), text);
    return key;
  }
  if (!output.regex.empty()) return "regex " + output.regex;
  if (!output.grammar.empty()) return "grammar " + output.grammar;
  return output.schema.empty() || !output.enforce ? "" : "schema " + output.schema;
}

std::shared_ptr<const Grammar> compile(const OutputSpec& output) {
  if (!output.texts.empty()) return enum_grammar(output.texts);
  if (!output.regex.empty()) return regex_grammar(output.regex);
  if (!output.grammar.empty()) return gbnf_grammar(output.grammar);
  if (const std::string wrong = check_json_schema(output.schema); !wrong.empty()) throw ConstraintError(wrong);
  return schema_grammar(output.schema);
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

}  // namespace baton
