// SPDX-License-Identifier: Apache-2.0
// EventStream: the data of server-sent events (WHATWG HTML, "Server-sent events"), the form in which MCP servers and
// model servers answer.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace baton {

class EventStream {
 public:
  /// `take` gets the data of each event that has any.
  explicit EventStream(std::function<void(std::string_view data)> take) : take_(std::move(take)) {}

  /// Reads the next bytes of the stream.
  void add(std::string_view bytes);
  /// Bytes of an event that is not complete.
  std::size_t held() const { return line_.size() + data_.size(); }

 private:
  void line(std::string_view text);

  std::function<void(std::string_view data)> take_;
  std::string line_, data_;
  bool first_ = true;  // no line has ended yet
  bool has_data_ = false;
  bool after_return_ = false;  // a line has ended with CR; LF behind it belongs to it
};

inline void EventStream::add(std::string_view bytes) {
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

inline void EventStream::line(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
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
