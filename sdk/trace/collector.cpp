// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/trace_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include <baton/version.h>

#include "engine/base/json/json_reader.h"
#include "sdk/pull/http.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxFailures = 3;
constexpr std::size_t kMaxAnswerBytes = 1 << 20;
constexpr std::size_t kMaxWords = 300;  // of text by a collector that are shown

/// The protocol allows no further attempt after other errors of a server.
bool may_try_again(const HttpError& error) {
  return error.status == 0 || error.status == 429 || error.status == 502 || error.status == 503 || error.status == 504;
}

/// Of an answer that took only a part of the spans, or nothing.
std::string rejection(const std::string& body) {
  try {
    const JsonDocument answer = read_json(body, {.max_depth = 8});
    const auto partial = answer->find("partialSuccess");
    if (!answer->is_object() || partial == answer->end() || !partial->is_object()) return {};
    const std::string rejected = partial->contains("rejectedSpans") ? (*partial)["rejectedSpans"].dump() : "";
    const std::string digits =
        rejected.size() > 2 && rejected.front() == '"' ? rejected.substr(1, rejected.size() - 2) : rejected;
    if (digits.empty() || digits == "0") return {};
    const auto words = partial->find("errorMessage");
    const bool has_words = words != partial->end() && words->is_string();
    return fmt::format("it rejected {} spans: {}", digits.substr(0, 20),
                       has_words ? words->get<std::string>().substr(0, kMaxWords) : "it does not say why");
  } catch (const JsonError&) {
    return {};  // not an answer of the protocol; the status said success
  }
}

}  // namespace

std::string send_trace(const CollectorSettings& settings, const std::string& otlp) {
  const Clock::time_point deadline = Clock::now() + settings.timeout;
  HttpRequest request;
  request.url = settings.url;
  request.headers = settings.headers;
  request.headers.emplace_back("Content-Type: application/json");
  request.post = otlp;
  std::string answer;
  try {
    Retries retries(kMaxFailures, {}, nullptr, deadline);
    retries.run([&] {
      const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now()).count();
      HttpClient client(
          {.user_agent = fmt::format("baton/{}", version()), .answer_seconds = std::max(1L, static_cast<long>(left))});
      try {
        answer = client.text(request, kMaxAnswerBytes);
      } catch (const HttpError& error) {
        if (error.kind != HttpError::Kind::transient || may_try_again(error)) throw;
        throw HttpError(HttpError::Kind::refused, error.what());
      }
    });
  } catch (const HttpError& error) {
    return error.what();
  }
  return rejection(answer);
}

}  // namespace baton
