// SPDX-License-Identifier: Apache-2.0
// What the languages of servers share in reading and writing JSON. For .cpp files of this room only.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "engine/base/json_fields.h"

namespace baton {

inline constexpr std::int32_t kMaxServerCount = std::numeric_limits<std::int32_t>::max();
inline constexpr double kMaxServerMs = 1e12;

/// A text of a server's. Throws ModelError for what is no JSON, and for what is beyond the limits of an event.
JsonDocument parse_server_json(std::string_view text, const std::string& origin);

/// A count of tokens; -1: the server does not tell it.
std::int64_t count(const JsonFields& fields, const std::string& key);

/// Invalid UTF-8 becomes U+FFFD.
std::string dumped(const Json& body);

/// A name that no other request has, so that its prompt shares nothing with what a server keeps.
std::string fresh_salt();

/// What an error says, in whichever form: {"error": {"message": ...}}, {"error": ...}, {"message": ...}, or any text.
std::string error_text(const Json& body);
std::string words_of_error(std::string_view body);

}  // namespace baton
