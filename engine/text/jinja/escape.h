// SPDX-License-Identifier: Apache-2.0
// Escapes in the string literals of templates: those of Python.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton::jinja {

/// Appends the value of what stands between the quotes. The result says what is wrong, if anything.
std::optional<std::string> unescape(std::string_view literal, std::string& out);

}  // namespace baton::jinja
