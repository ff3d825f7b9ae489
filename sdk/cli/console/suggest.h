// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the closest word of a list.
#pragma once

#include <string>
#include <vector>

namespace baton::cli {

/// The candidate that takes the fewest changed, added, removed or swapped letters, or empty when it takes more than a
/// third of the word.
std::string closest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace baton::cli
