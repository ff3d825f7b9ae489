// SPDX-License-Identifier: Apache-2.0
// A prompt template: pieces lie in the source in order, texts are never neighbours, and what is written back is read
// again as the same pieces.
#include "agents/prompts/prompt.h"

#include <cstdint>
#include <cstdlib>

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  std::vector<baton::TemplateError> errors;
  const std::vector<baton::TemplatePiece> pieces = baton::parse_template(source, errors);
  for (const baton::TemplateError& error : errors) require(error.offset < size && !error.message.empty());

  std::size_t last = 0;
  std::string written;
  bool writable = true;  // a text that ends in '{' cannot stand before a placeholder
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const baton::TemplatePiece& piece = pieces[i];
    const bool is_text = piece.placeholder.empty();
    require(piece.text.empty() != is_text);
    require(piece.offset >= last && piece.offset < size);
    require(!is_text || i == 0 || !pieces[i - 1].placeholder.empty());
    last = piece.offset;
    if (is_text) {
      std::string text = piece.text;
      for (std::size_t at = text.find("{{"); at != std::string::npos; at = text.find("{{", at + 4))
        text.insert(at, "{{");
      written += text;
      writable = writable && !text.ends_with('{');
    } else {
      require(source.substr(piece.offset, piece.placeholder.size()) == piece.placeholder);
      written += "{{ " + piece.placeholder + " }}";
    }
  }
  if (!writable) return 0;
  errors.clear();
  const std::vector<baton::TemplatePiece> again = baton::parse_template(written, errors);
  require(errors.empty() && again.size() == pieces.size());
  for (std::size_t i = 0; i < again.size(); ++i) {
    require(again[i].text == pieces[i].text && again[i].placeholder == pieces[i].placeholder);
  }
  return 0;
}
