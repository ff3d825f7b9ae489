// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/file.h"

#include <algorithm>

namespace baton {

std::vector<std::string> folders_of_list(std::string_view list) {
  constexpr char kSeparator = std::filesystem::path::preferred_separator == '/' ? ':' : ';';
  std::vector<std::string> folders;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(kSeparator), list.size());
    if (end > 0) folders.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return folders;
}

}  // namespace baton
