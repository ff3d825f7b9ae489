// SPDX-License-Identifier: Apache-2.0
// Formats of strings in JSON Schemas: what a text must be, for the check and for the grammar.
#pragma once

#include <string_view>

#include "engine/base/clock.h"

namespace baton {

struct StringFormat {
  std::string_view name;
  const char* regex;  // whole texts, for the grammar: what it holds is always of the format
  bool (*holds)(std::string_view text, const char* regex, Effort& effort);
};

/// Null for a format that is not enforced.
const StringFormat* string_format(std::string_view name);

}  // namespace baton
