// SPDX-License-Identifier: Apache-2.0
// Unicode data beyond what the libraries know, and normal forms.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_steps.h"

namespace baton::text {

// The differences between the Unicode tables of Hugging Face's libraries and ours. Their regular expressions use
// Unicode 16, and PCRE2 10.42 uses 14 (with a newer PCRE2 the additions are redundant); their normal forms use
// Unicode 9.

/// Returns the category ("Lo", "Nd") of a character added in Unicode 15, 15.1 or 16; empty for other characters.
std::string_view newer_category(char32_t c);
/// Returns the newer characters of a category ("L", "Nd", "Alphabetic") as members of a regular expression's class.
std::string newer_ranges(std::string_view category);
/// True for characters that `tokenizers` neither changes nor reorders in NFC, NFD, NFKC and NFKD.
bool stays_in_normal_forms(char32_t c);

// Unicode's normal forms, in time n log n. utf8proc_map puts combining marks in order by exchanging neighbours, which
// is quadratic in the number of marks on one character: 115 s for 320 KB of two kinds of marks.

struct NormalForm {
  bool composed = false;       // C, KC
  bool compatibility = false;  // KC, KD
};

/// Returns the normal form of valid UTF-8. Characters that `tokenizers` does not know stay as they are.
std::string in_normal_form(std::string_view text, NormalForm form, TextWork& work);

// The "normalizer" of tokenizer.json, which changes the text before it is split into words.

/// Immutable and safe from any thread.
class Normalizer {
 public:
  /// A null `value` makes a normalizer that does nothing. Throws ModelError.
  static Normalizer parse(const Json* value, const Where& where);

  bool changes_nothing() const { return steps_.empty(); }
  /// True if the result depends on Start::continues.
  bool changes_starts() const { return changes_starts_; }

  struct Start {
    bool kept = true;        // becomes false when characters at the start are removed
    bool continues = false;  // other text stands before it: nothing is added or stripped there
  };
  /// Returns the normalised text. `text` must be valid UTF-8. Throws ModelError for a text that grows too long or needs
  /// too many steps.
  std::string apply(std::string_view text, Start& start, TextWork& work) const;

  struct Step {
    virtual ~Step() = default;
    virtual void apply(std::string& text, Start& start, TextWork& work) const = 0;
  };

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const Step>> steps_;
  bool changes_starts_ = false;
};

}  // namespace baton::text
