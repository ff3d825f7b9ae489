// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/output_check.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

#include "agents/code_block.h"
#include "agents/json_check.h"
#include "agents/pattern.h"

namespace baton {
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
