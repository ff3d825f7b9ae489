// SPDX-License-Identifier: Apache-2.0
// Fenced code blocks in the output of a model.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

/// Returns the content of the last block between ``` fences, without the line end before the closing fence. The opening
/// fence may name a language. A block that the end of the text cuts off counts. Empty when there is no block.
std::optional<std::string> last_code_block(std::string_view text);

}  // namespace baton
