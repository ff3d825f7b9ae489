// SPDX-License-Identifier: Apache-2.0
// What servers that know OpenAI's API answer to completions, with what vLLM adds to it.
#pragma once

#include <string_view>

#include "engine/remote/server_api.h"

namespace baton {

/// An event of a stream, or a whole answer, of /v1/completions or /v1/chat/completions. Throws ModelError.
ServerPiece read_completion(std::string_view json);

}  // namespace baton
