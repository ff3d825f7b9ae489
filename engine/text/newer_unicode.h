// SPDX-License-Identifier: Apache-2.0
// Where the Unicode tables of Hugging Face's libraries differ from ours. Their regular expressions know Unicode 16, and
// PCRE2 10.42 only 14 (with a newer PCRE2 the rest is simply named twice); their normal forms know Unicode 9.
#pragma once

#include <string>
#include <string_view>

namespace baton::text {

/// The category ("Lo", "Nd") of a character of Unicode 15, 15.1 or 16; empty for other characters.
std::string_view newer_category(char32_t c);
/// The newer characters of a category ("L", "Nd", "Alphabetic") as members of a class of a regular expression.
std::string newer_ranges(std::string_view category);
/// Characters that `tokenizers` neither changes nor moves in NFC, NFD, NFKC and NFKD.
bool stays_in_normal_forms(char32_t c);

}  // namespace baton::text
