// SPDX-License-Identifier: Apache-2.0
#include "agents/code_block.h"

#include <algorithm>

namespace baton {
namespace {

/// Returns the backticks that a line begins with (after blanks), when there are at least three.
std::size_t fence_length(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return 0;
  const std::size_t end = std::min(line.find_first_not_of('`', begin), line.size());
  return end - begin >= 3 ? end - begin : 0;
}

bool closes(std::string_view line, std::size_t opening) {
  return fence_length(line) >= opening && line.find_last_not_of(" \t\r`") == std::string_view::npos;
}

}  // namespace

std::optional<std::string> last_code_block(std::string_view text) {
  std::optional<std::string_view> last;
  std::size_t opening = 0;  // length of the open fence; 0: none
  std::size_t begin = 0;    // begin of the block inside the open fence
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (opening == 0) {
      opening = fence_length(line);
      begin = std::min(end + 1, text.size());
    } else if (closes(line, opening)) {
      last = text.substr(begin, at - begin);
      opening = 0;
    }
    at = end + 1;
  }
  if (opening != 0 && begin < text.size()) last = text.substr(begin);
  if (!last) return std::nullopt;
  if (last->ends_with('\n')) last->remove_suffix(1);
  return std::string(*last);
}

}  // namespace baton
