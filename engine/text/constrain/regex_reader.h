// SPDX-License-Identifier: Apache-2.0
// Regular expressions to expressions of a grammar.
#pragma once

#include <string_view>

#include "engine/text/constrain/expression.h"

namespace baton::constrain {

/// The texts that match as a whole; `^` and `$` may stand at the ends of its alternatives.
ExpressionPtr regex_expression(std::string_view regex);

/// The texts in which the expression occurs: with `^` and `$` at their beginning and end.
ExpressionPtr search_expression(std::string_view regex);

}  // namespace baton::constrain
