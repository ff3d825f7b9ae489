// SPDX-License-Identifier: Apache-2.0
#include "engine/base/event_stream.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void EventStream::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    line(std::exchange(line_, {}));
  }
}

void EventStream::line(std::string_view text) {
  if (std::exchange(first_, false) && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.empty()) {
    const std::string data = std::exchange(data_, {});
    if (std::exchange(has_data_, false)) take_(data);
    return;
  }
  if (!text.starts_with("data") || (text.size() > 4 && text[4] != ':')) return;  // other fields, and comments
  text.remove_prefix(std::min<std::size_t>(text.size(), 5));
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += text;
}

}  // namespace baton
