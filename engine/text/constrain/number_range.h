// SPDX-License-Identifier: Apache-2.0
// Numbers of JSON between two bounds, as expressions of a grammar.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/text/constrain/expression.h"

namespace baton::constrain {

/// What a schema says of a number.
struct NumberBounds {
  std::optional<double> minimum, maximum, above;  // above: the number itself is not allowed

  bool any() const { return minimum || maximum || above; }
};

/// Whole numbers of at most 15 digits, without a fraction. Without parts when there is none between the bounds.
ExpressionPtr integers(const NumberBounds& bounds);

/// Numbers of at most 15 digits before the point and 15 behind it. Without bounds an exponent of up to two digits may
/// follow.
ExpressionPtr numbers(const NumberBounds& bounds);

}  // namespace baton::constrain
