// SPDX-License-Identifier: Apache-2.0
// How many edits lie between two words, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace baton {

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment), of bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace baton
