// SPDX-License-Identifier: Apache-2.0
// Text in HTML and SVG. What agents write is hostile there too: it must stay text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "sdk/cli/console/text.h"

namespace baton::cli {

/// Printable text (text.h) in which no character begins markup: sound between tags and as a quoted attribute.
std::string markup(std::string_view text, Lines lines);

/// At most `bytes` of the text, and no half of a character at its end.
std::string_view cut(std::string_view text, std::size_t bytes);

}  // namespace baton::cli
