// Characters of Unicode 15, 15.1 and 16, which PCRE2 10.42 (Unicode 14) does not know and Hugging Face's libraries do.
// With a newer PCRE2 they are simply named twice.
#pragma once

#include <string>
#include <string_view>

namespace baton::text {

/// "Lo", "Nd" and so on; empty for other characters.
std::string_view newer_category(char32_t c);
/// Those of a category ("L", "Nd", "Alphabetic") as members of a class of a regular expression.
std::string newer_ranges(std::string_view category);

}  // namespace baton::text
