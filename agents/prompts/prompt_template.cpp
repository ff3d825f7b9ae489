// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/prompt_template.h"

#include <algorithm>

#include "engine/base/json/json_parts.h"

namespace baton {
namespace {

constexpr std::string_view kTemplateBlanks = " \t\r\n";
constexpr std::size_t kShownBytes = 40;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_name_char(char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; }

bool is_member_char(char c) { return is_name_char(c) || (c >= 'A' && c <= 'Z') || c == '-'; }

/// True for [a-z][a-z0-9_]* and members of it, .[A-Za-z0-9_-]+.
bool is_name(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('.'));
  if (name.empty() || !is_lower(name.front()) || !std::all_of(name.begin(), name.end(), is_name_char)) return false;
  for (text.remove_prefix(name.size()); !text.empty();) {
    text.remove_prefix(1);
    const std::string_view member = text.substr(0, text.find('.'));
    if (member.empty() || !std::all_of(member.begin(), member.end(), is_member_char)) return false;
    text.remove_prefix(member.size());
  }
  return true;
}

std::string shown(std::string_view text) { return beginning(text, kShownBytes); }

void add_text(std::vector<TemplatePiece>& pieces, std::string_view text, std::size_t offset) {
  if (text.empty()) return;
  if (!pieces.empty() && pieces.back().placeholder.empty()) {
    pieces.back().text += text;
  } else {
    pieces.push_back({std::string(text), {}, offset});
  }
}

}  // namespace

std::vector<TemplatePiece> parse_template(std::string_view source, std::vector<TemplateError>& errors) {
  std::vector<TemplatePiece> pieces;
  std::size_t at = 0;
  while (at < source.size()) {
    const std::size_t open = source.find("{{", at);
    add_text(pieces, source.substr(at, open - at), at);
    if (open == std::string_view::npos) break;
    if (source.substr(open, 4) == "{{{{") {
      add_text(pieces, "{{", open);
      at = open + 4;
      continue;
    }

    const std::size_t inside = open + 2;
    const std::size_t close = source.substr(0, source.find("{{", inside)).find("}}", inside);
    if (close == std::string_view::npos) {
      errors.push_back({open, "'{{' is not closed with '}}' (write '{{{{' for a literal '{{')"});
      at = inside;
      continue;
    }
    const std::size_t begin = std::min(source.find_first_not_of(kTemplateBlanks, inside), close);
    const std::size_t end = begin == close ? close : source.find_last_not_of(kTemplateBlanks, close - 1) + 1;
    const std::string_view name = source.substr(begin, end - begin);
    if (name.empty()) {
      errors.push_back({open, "the placeholder has no name"});
    } else if (!is_name(name)) {
      errors.push_back(
          {begin, "'" + shown(name) + "' is not the name of a placeholder (write '{{{{' for a literal '{{')"});
    } else {
      pieces.push_back({{}, std::string(name), begin});
    }
    at = close + 2;
  }
  return pieces;
}

}  // namespace baton
