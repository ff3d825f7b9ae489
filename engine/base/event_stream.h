// SPDX-License-Identifier: Apache-2.0
// EventStream: the data of server-sent events (WHATWG HTML, "Server-sent events"), in which servers of MCP and of
// models answer.
#pragma once

#include <functional>
#include <string>
#include <string_view>

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

}  // namespace baton
