// SPDX-License-Identifier: Apache-2.0
// Prompt templates: text with {{ name }} placeholders, parsed once into pieces. Single braces are plain text;
// substituted text is never scanned again.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// Fixed text, or a placeholder by name ("user_question", "it.output").
struct TemplatePiece {
  std::string text;         // of fixed text
  std::string placeholder;  // empty for fixed text
  std::size_t offset = 0;   // bytes from the start of the source, of the name for placeholders
};

struct TemplateError {
  std::size_t offset = 0;
  std::string message;
};

/// Pieces in order; neighbouring text is one piece. Unclosed or empty placeholders and bad names go to `errors`.
/// A name is [a-z][a-z0-9_]* with optional .member; blanks around it are free. "{{{{" stands for a literal "{{".
std::vector<TemplatePiece> parse_template(std::string_view source, std::vector<TemplateError>& errors);

}  // namespace baton
