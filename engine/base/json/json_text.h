// SPDX-License-Identifier: Apache-2.0
// A value of JSON as text.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace baton {

/// On one line. Bytes that are not UTF-8 become U+FFFD. `Json`: nlohmann::json or ordered_json.
template <typename Json>
std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton
