// SPDX-License-Identifier: Apache-2.0
// The edit distance of two words, for "did you mean" hints.
#pragma once

#include <cstddef>
#include <string_view>

namespace baton {

/// Returns the number of insertions, deletions, substitutions and swaps of neighbouring bytes (optimal string
/// alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace baton
