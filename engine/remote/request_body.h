// SPDX-License-Identifier: Apache-2.0
// RequestBody: the JSON object of a request to a server, written as it is made. A nlohmann::json would end the process
// where memory runs out meanwhile: its destructor allocates (docs/decisions/memory.md).
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace baton {

class RequestBody {
 public:
  /// Adds a member: a truth value, a finite number, a text, another body, or a range of these. Names are not repeated
  /// and need no escapes. Leaves the body as it was when it throws.
  template <class Value>
  RequestBody& set(std::string_view name, const Value& value) {
    std::string member = members_.empty() ? "\"" : ",\"";
    append(member.append(name).append("\":"), value);
    members_ += member;
    return *this;
  }

  std::string text() const { return "{" + members_ + "}"; }

 private:
  template <class Value>
  static void append(std::string& out, const Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      out += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<Value>) {
      out += std::to_string(value);
    } else if constexpr (std::is_floating_point_v<Value>) {
      append_number(out, value);
    } else if constexpr (std::is_same_v<Value, RequestBody>) {
      out += value.text();
    } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
      append_text(out, value);
    } else {
      const char* separator = "[";
      for (const auto& one : value) {
        out += std::exchange(separator, ",");
        append(out, one);
      }
      out += *separator == '[' ? "[]" : "]";
    }
  }

  static void append_number(std::string& out, double value);
  static void append_text(std::string& out, std::string_view text);  // invalid UTF-8 becomes U+FFFD

  std::string members_;
};

}  // namespace baton
