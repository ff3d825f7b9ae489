// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <baton/errors.h>

#include "engine/base/json/json_parts.h"
#include "sdk/serve/chat_request.h"

namespace baton::serve {
namespace {

constexpr std::size_t kMinLength = 8;

/// What stands behind the scheme, whose case does not matter; empty: it is another scheme.
std::string_view behind(std::string_view text, std::string_view scheme) {
  if (text.size() <= scheme.size() || text[scheme.size()] != ' ') return {};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    if (lower(text[i]) != scheme[i]) return {};
  }
  text.remove_prefix(scheme.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    held = (held << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFF;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(held >> bits & 0xFF));
  }
  return bytes;
}

}  // namespace

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  volatile unsigned char different = left.size() == right.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    different = static_cast<unsigned char>(different | (left[i] ^ right[i]));
  return different == 0;
}

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const std::string& key = keys_[i];
    if (key.size() < kMinLength)
      throw InputError(fmt::format("key {}: expected at least {} characters, found {}", i + 1, kMinLength, key.size()));
    if (!std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7F; }))
      throw InputError(fmt::format("key {}: expected printable ASCII characters without blanks", i + 1));
  }
}

std::optional<std::size_t> ApiKeys::find(std::string_view authorization) const {
  std::string given(behind(authorization, "bearer"));
  if (const std::string_view basic = behind(authorization, "basic"); !basic.empty()) {
    const std::string pair = from_base64(basic).value_or("");
    given = pair.substr(std::min(pair.find(':'), pair.size() - 1) + 1);
  }
  return find_key(given);
}

std::optional<std::size_t> ApiKeys::find_key(std::string_view given) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (equal_in_constant_time(keys_[i], given)) found = i;
  }
  return found;
}

std::vector<std::string> keys_of_text(std::string_view text) {
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    keys.emplace_back(line);
  }
  return keys;
}

int RateLimit::wait_seconds(const std::string& client, Clock::time_point now) {
  if (per_minute_ <= 0) return 0;
  const double capacity = per_minute_, per_second = per_minute_ / 60.0;
  const auto [at, added] = buckets_.try_emplace(client, Bucket{capacity, now});
  Bucket& bucket = at->second;
  const std::chrono::duration<double> since = now - bucket.seen;
  bucket = {std::min(capacity, bucket.tokens + since.count() * per_second), now};
  const double lacking = 1.0 - bucket.tokens;
  if (lacking <= 0) bucket.tokens -= 1.0;
  if (added && buckets_.size() > kMaxClients) {
    buckets_.erase(std::min_element(buckets_.begin(), buckets_.end(), [](const auto& left, const auto& right) {
      return left.second.seen < right.second.seen;
    }));
  }
  return lacking <= 0 ? 0 : static_cast<int>(std::ceil(lacking / per_second));
}

namespace {

constexpr std::array<std::string_view, kEndpoints> kPaths = {"/",
                                                             "/health",
                                                             "/metrics",
                                                             "/v1/models",
                                                             "/v1/models/{model}",
                                                             "/v1/chat/completions",
                                                             "/v1/completions",
                                                             "/v1/responses",
                                                             "/v1/messages",
                                                             "/v1/approvals",
                                                             "/v1/approvals/{id}"};

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
    const std::string_view known = kPaths[i];
    const std::size_t name = std::min(known.find('{'), known.size());
    const bool named = name < known.size() && path.starts_with(known.substr(0, name)) && path.size() > name;
    if (named || (name == known.size() && path == known))
      return {static_cast<Endpoint>(i), std::string(path.substr(name)), 0};
  }
  throw ApiError(404, "not_found", fmt::format("there is nothing at {}", beginning(path, 60)));
}

}  // namespace

std::string_view path_of(Endpoint endpoint) { return kPaths[static_cast<std::size_t>(endpoint)]; }

Admitted admit(const RequestHead& head, const ApiKeys& keys, const ServeOptions& options) {
  check_site(head, keys);
  std::size_t key = 0;
  if (!keys.empty()) {
    const auto found = head.authorization.empty() ? keys.find_key(head.api_key) : keys.find(head.authorization);
    if (!found)
      throw ApiError(401, "invalid_api_key",
                     head.authorization.empty() && head.api_key.empty() ? "a key is needed: Authorization: Bearer KEY"
                                                                        : "the key is wrong");
    key = *found;
  }
  Admitted admitted = find_endpoint(head.target);
  admitted.key = key;
  const bool is_post = takes_body(admitted.endpoint);
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
  return takes_body(find_endpoint(target).endpoint) ? "POST" : "GET, HEAD";
}

std::string_view challenge_of(std::string_view target) {
  return target.starts_with("/v1/") ? R"(Bearer realm="baton")" : R"(Basic realm="baton: the key is the password")";
}

}  // namespace baton::serve
