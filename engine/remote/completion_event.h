// SPDX-License-Identifier: Apache-2.0
// Events of servers that stream as OpenAI does: how they end and fail, and what completions hold, with what vLLM adds.
#pragma once

#include <optional>
#include <string_view>

#include "engine/base/json_fields.h"
#include "engine/remote/server_api.h"

namespace baton {

inline constexpr const char* kAnswer = "its answer";  // the origin of what is read

/// What an event of a stream holds; nothing: it is the end of the stream or an error, as `piece` then says. Throws
/// ModelError.
std::optional<JsonDocument> read_event(std::string_view json, ServerPiece& piece);

/// An event of a stream, or a whole answer, of /v1/completions or /v1/chat/completions. Throws ModelError.
ServerPiece read_completion(std::string_view json);

}  // namespace baton
