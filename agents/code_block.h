// SPDX-License-Identifier: Apache-2.0
// Fenced code blocks in what a model wrote.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

/// The inside of the last block between ``` fences (a language after the opening fence is free), without the line end
/// before the closing fence. A block that the end of the text cuts off counts. Empty when there is none.
std::optional<std::string> last_code_block(std::string_view text);

}  // namespace baton
