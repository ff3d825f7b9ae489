// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/output_grammar.h"

#include "agents/json_check.h"

namespace baton {

std::shared_ptr<const Grammar> output_grammar(const OutputSpec& output) {
  if (!output.texts.empty()) return enum_grammar(output.texts);
  if (!output.regex.empty()) return regex_grammar(output.regex);
  if (!output.grammar.empty()) return gbnf_grammar(output.grammar);
  if (output.schema.empty() || !output.enforce) return nullptr;
  if (const std::string wrong = check_json_schema(output.schema); !wrong.empty()) throw ConstraintError(wrong);
  return schema_grammar(output.schema);
}

}  // namespace baton
