// SPDX-License-Identifier: Apache-2.0
// What is decided about a request by its header alone, before its body is read: its key, its client's rate, admission.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/serve/server.h"

namespace baton::serve {

/// Takes a time that depends on the texts' lengths alone.
bool equal_in_constant_time(std::string_view left, std::string_view right);

class ApiKeys {
 public:
  /// Throws InputError for a key that a header cannot carry, or with fewer than 8 characters.
  explicit ApiKeys(std::vector<std::string> keys);

  bool empty() const { return keys_.empty(); }
  /// The index of the key that the value of a header Authorization carries, "Bearer KEY" or "Basic ..." with the key as
  /// the password, as a browser sends it; nothing: it carries none of them. Compares with every key in constant time.
  std::optional<std::size_t> find(std::string_view authorization) const;
  /// The same for a key alone.
  std::optional<std::size_t> find_key(std::string_view given) const;

 private:
  std::vector<std::string> keys_;
};

/// The keys in the text of a file: one a line; empty lines and those that begin with '#' are left out.
std::vector<std::string> keys_of_text(std::string_view text);

/// A bucket of tokens for each client, which holds those of a minute and fills steadily. For one thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMaxClients = 10'000;  // buckets; that of the client unseen for longest is forgotten

  /// `per_minute` 0: no limit.
  explicit RateLimit(int per_minute) : per_minute_(per_minute) {}

  /// Counts a request. Returns 0, or after how many seconds the client may try again.
  int wait_seconds(const std::string& client, Clock::time_point now);

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point seen;
  };

  int per_minute_;
  std::map<std::string, Bucket> buckets_;
};

enum class Endpoint : std::uint8_t {
  page,
  health,
  metrics,
  models,
  model,
  chat,
  completion,
  responses,
  messages,
  approvals,
  approval
};
inline constexpr std::size_t kEndpoints = 11;

/// The path, "/v1/models/{model}" for that of one model.
std::string_view path_of(Endpoint endpoint);

/// The fields of a header that count; empty: absent.
struct RequestHead {
  std::string_view method, target, host, origin, authorization, content_type, content_encoding;
  std::string_view api_key;  // x-api-key, as clients of Anthropic's interface send it
  std::optional<std::uint64_t> content_length{};
};

struct Admitted {
  Endpoint endpoint = Endpoint::health;
  std::string name;     // that of the model or the approval for Endpoint::model and Endpoint::approval
  std::size_t key = 0;  // which one the request carries if there are keys
};

/// Throws ApiError: 403 for a page of another site, 401 for a request without a key if there are keys, 404 for an
/// unknown path, 405, 413, 415. In this order, so that nobody without a key learns anything.
Admitted admit(const RequestHead& head, const ApiKeys& keys, const ServeOptions& options);

/// The value of Allow in an answer with the status 405.
std::string_view methods_of(std::string_view target);

/// The value of WWW-Authenticate in an answer with the status 401: a browser then asks for the key.
std::string_view challenge_of(std::string_view target);

/// True if a path is one whose requests run a workflow.
constexpr bool runs(Endpoint endpoint) { return endpoint >= Endpoint::chat && endpoint <= Endpoint::messages; }

/// True if requests for a path have a body.
constexpr bool takes_body(Endpoint endpoint) { return runs(endpoint) || endpoint == Endpoint::approval; }

}  // namespace baton::serve
