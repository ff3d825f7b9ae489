// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/admission.h"

#include <fmt/format.h>

#include <array>

#include "engine/base/json/beginning.h"
#include "sdk/serve/api_error.h"

namespace baton::serve {
namespace {

constexpr std::array<std::string_view, kEndpoints> kPaths = {
    "/", "/health", "/metrics", "/v1/models", "/v1/models/{model}", "/v1/chat/completions", "/v1/completions"};
constexpr std::string_view kModelPath = "/v1/models/";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

/// A host's name without its port.
std::string name_of_host(std::string_view host) {
  if (host.starts_with('[')) return lower(host.substr(0, host.find(']') + 1));
  return lower(host.substr(0, host.find(':')));
}

/// A page of another site must not use a server that trusts whoever reaches it: neither from its own origin, nor with a
/// name of its own that leads to this machine.
void check_site(const RequestHead& head, const ApiKeys& keys) {
  if (!head.origin.empty()) {
    const std::string origin = lower(head.origin), host = lower(head.host);
    if (origin != "http://" + host && origin != "https://" + host)
      throw ApiError(403, "forbidden_origin", "pages of other sites may not use this server");
  }
  if (!keys.empty()) return;
  const std::string name = name_of_host(head.host);
  if (name.empty() || name == "localhost" || name == "127.0.0.1" || name == "[::1]") return;
  throw ApiError(403, "forbidden_host",
                 fmt::format("the header Host names '{}'; without keys expected localhost, 127.0.0.1 or [::1]",
                             beginning(name, 60)));
}

Admitted find_endpoint(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  for (std::size_t i = 0; i < kPaths.size(); ++i) {
    if (path == kPaths[i] && static_cast<Endpoint>(i) != Endpoint::model) return {static_cast<Endpoint>(i), {}, 0};
  }
  if (path.starts_with(kModelPath) && path.size() > kModelPath.size())
    return {Endpoint::model, std::string(path.substr(kModelPath.size())), 0};
  throw ApiError(404, "not_found", fmt::format("there is nothing at {}", beginning(path, 60)));
}

}  // namespace

std::string_view path_of(Endpoint endpoint) { return kPaths[static_cast<std::size_t>(endpoint)]; }

Admitted admit(const RequestHead& head, const ApiKeys& keys, const ServeOptions& options) {
  check_site(head, keys);
  std::size_t key = 0;
  if (!keys.empty()) {
    const auto found = keys.find(head.authorization);
    if (!found)
      throw ApiError(401, "invalid_api_key",
                     head.authorization.empty() ? "a key is needed: Authorization: Bearer KEY" : "the key is wrong");
    key = *found;
  }
  Admitted admitted = find_endpoint(head.target);
  admitted.key = key;
  const bool is_post = runs(admitted.endpoint);
  const bool fits = is_post ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
  if (!fits)
    throw ApiError(405, "method_not_allowed",
                   fmt::format("{}: expected {}", path_of(admitted.endpoint), is_post ? "POST" : "GET"));
  if (!head.content_encoding.empty() && lower(head.content_encoding) != "identity")
    throw ApiError(415, "unsupported_media_type", "Content-Encoding: expected a body that is not compressed");
  // Pages of other sites can send forms and plain text, but no JSON, without asking.
  if (is_post && lower(head.content_type.substr(0, head.content_type.find_first_of("; "))) != "application/json")
    throw ApiError(415, "unsupported_media_type", "Content-Type: expected application/json");
  const std::uint64_t limit = is_post ? options.max_body_bytes : 0;
  if (head.content_length.value_or(0) > limit)
    throw ApiError(413, "body_too_large",
                   fmt::format("the body has {} bytes; expected at most {}", *head.content_length, limit));
  return admitted;
}

std::string_view methods_of(std::string_view target) {
  return runs(find_endpoint(target).endpoint) ? "POST" : "GET, HEAD";
}

std::string_view challenge_of(std::string_view target) {
  return target.starts_with("/v1/") ? R"(Bearer realm="baton")" : R"(Basic realm="baton: the key is the password")";
}

}  // namespace baton::serve
