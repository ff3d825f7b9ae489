// SPDX-License-Identifier: Apache-2.0
// Every code that a diagnostic of a workflow file can carry, and what `baton explain` says of it. Codes are stable:
// they are never given another meaning.
#pragma once

#include <span>
#include <string_view>

namespace baton {

struct ErrorCode {
  std::string_view code;
  std::string_view meaning;  // one sentence, that of the table in docs/yaml.md
  std::string_view causes;   // what usually leads to it
  std::string_view remedy;   // what to do
  std::string_view wrong;    // lines of a workflow file, or a `--set` option, that get this code
  std::string_view right;    // in their place, without any error
};

/// In ascending order.
std::span<const ErrorCode> error_codes();

/// Those of values and files, a part of `error_codes()`.
std::span<const ErrorCode> error_codes_of_values();

}  // namespace baton
