// SPDX-License-Identifier: Apache-2.0
// What the pictures of measurements have in common.
#pragma once

#include <string>

#include "sdk/cli/console/html.h"

namespace baton::cli {

/// The beginning of an SVG file of its own, up to its title at `left`; `grid`, `end` and `middle` are classes of lines
/// and texts. "</svg>\n" ends the file.
Markup begin_svg(double width, double height, double left, const std::string& title);

}  // namespace baton::cli
