// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_json.h"

#include <fmt/format.h>

#include <random>

#include "engine/base/said.h"

namespace baton {

JsonDocument parse_server_json(std::string_view text, const std::string& origin) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  JsonLimits limits;
  limits.max_values = 4'000'000;
  limits.max_bytes = kMaxBytes;
  limits.max_token = kMaxBytes;
  return parse_json(text, origin, limits);
}

std::int64_t count(const JsonFields& fields, const std::string& key) {
  return fields.integer_or(key, -1, -1, kMaxServerCount);
}

std::string dumped(const Json& body) { return body.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string fresh_salt() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string error_text(const Json& body) {
  const Json* error = &body;
  for (const char* key : {"error", "message", "detail"}) {
    if (error->is_object() && error->contains(key)) error = &(*error)[key];
  }
  std::string text = said(error->is_string() ? error->get_ref<const std::string&>() : dumped(*error));
  return text.empty() ? "without words" : text;  // an empty text would be no error
}

std::string words_of_error(std::string_view body) {
  try {
    return error_text(*parse_server_json(body, "its answer"));
  } catch (const std::exception&) {
    return said(body, 200);
  }
}

}  // namespace baton
