// SPDX-License-Identifier: Apache-2.0
// The differences between the Unicode tables of Hugging Face's libraries and ours. Their regular expressions use
// Unicode 16, and PCRE2 10.42 uses 14 (with a newer PCRE2 the additions are redundant); their normal forms use
// Unicode 9.
#pragma once

#include <string>
#include <string_view>

namespace baton::text {

/// Returns the category ("Lo", "Nd") of a character added in Unicode 15, 15.1 or 16; empty for other characters.
std::string_view newer_category(char32_t c);
/// Returns the newer characters of a category ("L", "Nd", "Alphabetic") as members of a regular expression's class.
std::string newer_ranges(std::string_view category);
/// True for characters that `tokenizers` neither changes nor reorders in NFC, NFD, NFKC and NFKD.
bool stays_in_normal_forms(char32_t c);

}  // namespace baton::text
