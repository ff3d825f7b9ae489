// SPDX-License-Identifier: Apache-2.0
// The constraint on an agent's output: compiled for decoding, and checked on the text that was written.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/text/constrain/grammar.h"
#include "workflows/format/spec.h"

namespace baton {

/// The grammars of one workflow: equal constraints are compiled once, and all of them together have a bound of size.
class OutputGrammars {
 public:
  /// Null if the whole output is not constrained, and for a schema that is only checked. Throws ConstraintError.
  std::shared_ptr<const Grammar> get(const OutputSpec& output);

 private:
  struct Compiled {
    std::shared_ptr<const Grammar> grammar;
    std::string error;  // why there is no grammar
  };

  std::map<std::string, Compiled> compiled_;  // by the constraint with its kind
  std::size_t nodes_ = 0;
};

struct CheckedOutput {
  std::string answer;   // the first group of the pattern's last match, the JSON that fits the schema, or the output
  std::string problem;  // empty: the output passes
};

/// `grammar`: that of the spec. JSON may stand alone or in the last fenced code block. A pattern that takes
/// too long is a problem, not an exception.
CheckedOutput check_output(const OutputSpec& spec, const Grammar* grammar, const std::string& output);

}  // namespace baton
