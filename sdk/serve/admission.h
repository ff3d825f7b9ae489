// SPDX-License-Identifier: Apache-2.0
// What is decided about a request by its header alone, before its body is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sdk/serve/api_keys.h"
#include "sdk/serve/serve_options.h"

namespace baton::serve {

enum class Endpoint : std::uint8_t { page, health, metrics, models, model, chat, completion };
inline constexpr std::size_t kEndpoints = 7;

/// The path, "/v1/models/{model}" for that of one model.
std::string_view path_of(Endpoint endpoint);

/// The fields of a header that count; empty: absent.
struct RequestHead {
  std::string_view method, target, host, origin, authorization, content_type, content_encoding;
  std::optional<std::uint64_t> content_length{};
};

struct Admitted {
  Endpoint endpoint = Endpoint::health;
  std::string model;    // of Endpoint::model
  std::size_t key = 0;  // which one the request carries, where there are keys
};

/// Throws ApiError: 403 for a page of another site, 401 for a request without a key where there are some, 404 for an
/// unknown path, 405, 413, 415. In this order, so that nobody without a key learns anything.
Admitted admit(const RequestHead& head, const ApiKeys& keys, const ServeOptions& options);

/// The value of Allow in an answer with the status 405.
std::string_view methods_of(std::string_view target);

/// The value of WWW-Authenticate in an answer with the status 401: a browser then asks for the key.
std::string_view challenge_of(std::string_view target);

/// True where a path is one whose requests run a workflow.
constexpr bool runs(Endpoint endpoint) { return endpoint == Endpoint::chat || endpoint == Endpoint::completion; }

}  // namespace baton::serve
