// SPDX-License-Identifier: Apache-2.0
// Every code that a diagnostic of a workflow file can carry, with its meaning. Codes are stable: they are never given
// another meaning.
#pragma once

#include <span>
#include <string_view>

namespace baton {

struct ErrorCode {
  std::string_view code;
  std::string_view meaning;
};

std::span<const ErrorCode> error_codes();

}  // namespace baton
