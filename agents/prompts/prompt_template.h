// SPDX-License-Identifier: Apache-2.0
// Prompt templates: text with {{ name }} placeholders, parsed once into pieces. Single braces are plain text, and
// substituted text is never parsed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// A piece of fixed text, or a placeholder by name ("user_question", "it.output").
struct TemplatePiece {
  std::string text;         // the fixed text
  std::string placeholder;  // empty for fixed text
  std::size_t offset = 0;   // byte offset in the source; for placeholders, of the name
  bool data = false;        // fixed text that is not the author's: special tokens in it are text
};

struct TemplateError {
  std::size_t offset = 0;
  std::string message;
};

/// Returns the pieces in order; adjacent text is one piece. Adds unclosed or empty placeholders and invalid names to
/// `errors`. A name is [a-z][a-z0-9_]* with an optional .member and may have blanks around it. "{{{{" stands for a
/// literal "{{".
std::vector<TemplatePiece> parse_template(std::string_view source, std::vector<TemplateError>& errors);

}  // namespace baton
