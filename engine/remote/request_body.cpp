// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/request_body.h"

#include "engine/remote/server_json.h"

namespace baton {

// A number or a text alone is freed without memory.
void RequestBody::append_number(std::string& out, double value) { out += dumped(Json(value)); }

void RequestBody::append_text(std::string& out, std::string_view text) { out += dumped(Json(text)); }

}  // namespace baton
