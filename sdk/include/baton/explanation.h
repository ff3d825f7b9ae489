// SPDX-License-Identifier: Apache-2.0
// What the error codes of workflow files mean (docs/yaml.md has them as a table).
#pragma once

#include <string>
#include <vector>

namespace baton::inline v1 {

/// Of a code that `Diagnostic::code` may hold.
struct Explanation {
  std::string code;     // "E0304"
  std::string meaning;  // one sentence
  std::string causes;   // what usually leads to it
  std::string remedy;   // what to do
  std::string wrong;    // lines of a workflow file that get this code, as an example
  std::string right;    // what to write in their place
};

/// All of them, in ascending order of their codes.
const std::vector<Explanation>& explanations();

}  // namespace baton::inline v1
