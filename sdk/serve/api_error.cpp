// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/api_error.h"

#include "engine/base/json/json_text.h"

namespace baton::serve {
namespace {

const char* type_of(int status) {
  if (status >= 500) return "server_error";
  if (status == 401 || status == 403) return "authentication_error";
  return status == 429 ? "rate_limit_error" : "invalid_request_error";
}

}  // namespace

std::string error_json(const ApiError& error) {
  using Json = nlohmann::ordered_json;
  const Json param = error.param.empty() ? Json(nullptr) : Json(error.param);
  const Json body = {
      {"message", error.what()}, {"type", type_of(error.status)}, {"param", param}, {"code", error.code}};
  return json_text(Json{{"error", body}});
}

}  // namespace baton::serve
