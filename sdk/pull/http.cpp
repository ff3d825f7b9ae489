// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "engine/base/curl_handles.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/hub/model_source.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRedirects = 10;
constexpr std::size_t kMaxHeaderBytes = 128 * 1024;  // in one answer
constexpr std::size_t kMaxIgnoredBytes = 64 * 1024;  // in the body of an answer that is not 2xx
constexpr long kConnectSeconds = 20;
constexpr long kMinSpeed = 1024;          // bytes per second; a slower connection counts as lost
constexpr std::size_t kMaxMessage = 300;  // characters of a server's own words in an error

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != text.npos) text.remove_suffix(1);
  return text;
}

/// A part of an URL, or nothing: empty.
std::string url_part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

Url parse_url(const std::string& text) {
  Url url(curl_url());
  if (!url) throw std::bad_alloc();
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    throw HttpError(HttpError::Kind::refused, fmt::format("'{}' is not a URL", shown_url(text)));
  return url;
}

/// "https://host:443", in lower case.
std::string origin_of(const std::string& text) {
  const Url url = parse_url(text);
  std::string origin =
      fmt::format("{}://{}:{}", url_part(url.get(), CURLUPART_SCHEME), url_part(url.get(), CURLUPART_HOST),
                  url_part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT));
  std::transform(origin.begin(), origin.end(), origin.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return origin;
}

/// Where a Location header leads from `from`. Throws HttpError for a scheme that is not followed.
std::string redirect_target(const std::string& from, const std::string& location) {
  const Url url = parse_url(from);
  const auto refuse = [&](std::string_view why) {
    return HttpError(HttpError::Kind::refused,
                     fmt::format("{} redirects to '{}': {}", shown_url(from), shown_url(location).substr(0, 200), why));
  };
  const std::string before = url_part(url.get(), CURLUPART_SCHEME);
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) throw refuse("expected a URL");
  const std::string after = url_part(url.get(), CURLUPART_SCHEME);
  if (after != "https" && after != "http") throw refuse("expected https or http");
  if (before == "https" && after == "http") throw refuse("a secure connection is not given up for an insecure one");
  return url_part(url.get(), CURLUPART_URL);
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool passes(CURLcode code) {
  return is_transient(code) || code == CURLE_SSL_CONNECT_ERROR || code == CURLE_HTTP3 ||
         code == CURLE_QUIC_CONNECT_ERROR;
}

/// Seconds that a Retry-After header asks for: a number, or a date.
double retry_after(const std::string& text) {
  if (text.empty()) return 0;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size()) return seconds > 0 ? seconds : 0;
  const std::time_t date = curl_getdate(text.c_str(), nullptr);
  return date < 0 ? 0 : std::max(0.0, std::difftime(date, std::time(nullptr)));
}

HttpError status_error(const HttpReply& reply) {
  const bool transient = reply.status == 408 || reply.status == 425 || reply.status == 429 || reply.status >= 500;
  std::string text = fmt::format("{} answered with status {}", shown_url(reply.url), reply.status);
  if (const std::string words = reply.header("x-error-message"); !words.empty())
    text += ": " + words.substr(0, kMaxMessage);
  HttpError error(transient ? HttpError::Kind::transient : HttpError::Kind::refused, text);
  error.status = reply.status;
  error.wait_seconds = retry_after(reply.header("retry-after"));
  error.code = reply.header("x-error-code").substr(0, 64);
  return error;
}

}  // namespace

/// One request on its way, as libcurl's callbacks see it.
struct HttpClient::Hop {
  const HttpRequest* request = nullptr;
  const std::function<void(const HttpReply&)>* begin = nullptr;
  const std::function<void(std::span<const std::byte>)>* write = nullptr;
  const std::stop_token* stop = nullptr;
  void* handle = nullptr;
  bool at_first = false;       // at the host of the request
  Clock::time_point deadline;  // unless it is a file
  HttpReply reply;
  std::size_t header_bytes = 0;
  std::size_t ignored_bytes = 0;
  bool begun = false;
  bool enough = false;  // the rest of a body that nobody reads was not waited for
  std::exception_ptr thrown;

  bool wanted() const { return reply.status >= 200 && reply.status < 300; }

  /// Headers of the hub about a file are kept when it redirects to another host.
  void collect_linked() {
    if (!at_first) return;
    for (const auto& [name, value] : reply.headers)
      if (name.starts_with("x-linked-") || name == "x-repo-commit") reply.linked[name] = value;
  }

  void start() {
    if (begun) return;
    begun = true;
    collect_linked();
    const std::string encoding = reply.header("content-encoding");
    if (!encoding.empty() && encoding != "identity")
      throw HttpError(HttpError::Kind::refused,
                      fmt::format("{} sends a body in the encoding '{}', which was not asked for", shown_url(reply.url),
                                  encoding.substr(0, 40)));
    (*begin)(reply);
  }

  static std::size_t on_header(char* bytes, std::size_t size, std::size_t count, void* data) {
    Hop& hop = *static_cast<Hop*>(data);
    const std::string_view line = trimmed({bytes, size * count});
    hop.header_bytes += size * count;
    if (hop.header_bytes > kMaxHeaderBytes) return 0;
    try {
      if (line.starts_with("HTTP/")) hop.reply.headers.clear();  // after an interim answer
      if (const std::size_t colon = line.find(':'); colon != line.npos) {
        std::string name(line.substr(0, colon));
        std::transform(name.begin(), name.end(), name.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
        hop.reply.headers[name] = trimmed(line.substr(colon + 1));
      }
    } catch (...) {
      hop.thrown = std::current_exception();
      return 0;
    }
    return size * count;
  }

  static std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* data) {
    Hop& hop = *static_cast<Hop*>(data);
    try {
      curl_easy_getinfo(hop.handle, CURLINFO_RESPONSE_CODE, &hop.reply.status);
      if (hop.wanted()) {
        hop.start();
        (*hop.write)(std::as_bytes(std::span(bytes, size * count)));
      } else if ((hop.ignored_bytes += size * count) > kMaxIgnoredBytes) {
        hop.enough = true;
        return 0;
      }
    } catch (...) {
      hop.thrown = std::current_exception();
      return 0;
    }
    return size * count;
  }

  static int on_progress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Hop*>(data)->stop->stop_requested() ? 1 : 0;
  }
};

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

HttpClient::HttpClient(HttpSettings settings) : settings_(std::move(settings)) {
  start_curl();
  handle_ = curl_easy_init();
  if (handle_ == nullptr) throw std::bad_alloc();
}

HttpClient::~HttpClient() { curl_easy_cleanup(handle_); }

std::unique_ptr<HttpError> HttpClient::perform(Hop& hop) {
  CURL* curl = handle_;
  hop.handle = handle_;
  hop.stop = &settings_.stop;
  std::array<char, CURL_ERROR_SIZE> problem{};
  curl_easy_reset(curl);  // keeps connections
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  set(CURLOPT_URL, hop.reply.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "https,http");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_USERAGENT, settings_.user_agent.c_str());
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, kMinSpeed);
  set(CURLOPT_LOW_SPEED_TIME, settings_.stall_seconds);
  if (!hop.request->is_file) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(hop.deadline - Clock::now()).count();
    set(CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(left)));
  }
  set(CURLOPT_ERRORBUFFER, problem.data());
  set(CURLOPT_HEADERFUNCTION, &Hop::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&hop));
  set(CURLOPT_WRITEFUNCTION, &Hop::on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&hop));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Hop::on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&hop));
  if (hop.request->head) set(CURLOPT_NOBODY, 1L);
  const std::string range = fmt::format("{}-", hop.request->from);
  if (hop.request->from > 0) set(CURLOPT_RANGE, range.c_str());
  const std::string authorities = curl_authorities();
  if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
  CurlHeaders headers;
  if (hop.at_first && !hop.request->token.empty()) add_header(headers, "Authorization: Bearer " + hop.request->token);
  if (!hop.request->if_range.empty() && hop.request->from > 0)
    add_header(headers, "If-Range: " + hop.request->if_range);
  if (hop.at_first) {
    for (const std::string& header : hop.request->headers) add_header(headers, header);
  }
  if (const std::optional<std::string>& body = hop.request->post) {
    add_header(headers, "Expect:");  // nobody waits for a server to agree to the body
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDS, body->data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
  }
  set(CURLOPT_HTTPHEADER, headers.get());
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &hop.reply.status);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));

  using Kind = HttpError::Kind;
  if (hop.thrown) std::rethrow_exception(hop.thrown);
  if (settings_.stop.stop_requested()) return std::make_unique<HttpError>(Kind::stopped, "stopped");
  if (hop.header_bytes > kMaxHeaderBytes)
    return std::make_unique<HttpError>(Kind::refused, fmt::format("{} sends more than {} KiB of headers",
                                                                  shown_url(hop.reply.url), kMaxHeaderBytes / 1024));
  if (code == CURLE_OK || hop.enough) return nullptr;
  std::string words = problem.front() != '\0' ? problem.data() : curl_easy_strerror(code);
  if (code == CURLE_OPERATION_TIMEDOUT && words.starts_with("Operation too slow"))
    words = fmt::format("less than 1 KiB/s for {} s", settings_.stall_seconds);
  if (code == CURLE_OPERATION_TIMEDOUT && words.starts_with("Operation timed out"))
    words = fmt::format("no complete answer within {} s", settings_.answer_seconds);
  return std::make_unique<HttpError>(passes(code) ? Kind::transient : Kind::refused,
                                     fmt::format("{}: {}", shown_url(hop.reply.url), words));
}

HttpReply HttpClient::send(const HttpRequest& request, const std::function<void(const HttpReply& reply)>& begin,
                           const std::function<void(std::span<const std::byte> bytes)>& write) {
  const std::string first = origin_of(request.url);
  std::map<std::string, std::string> linked;
  std::string url = request.url;
  const auto deadline = Clock::now() + std::chrono::seconds(settings_.answer_seconds);
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    const bool at_first = origin_of(url) == first;
    Hop hop;
    hop.request = &request;
    hop.begin = &begin;
    hop.write = &write;
    hop.at_first = at_first;
    hop.deadline = deadline;
    hop.reply.url = url;
    hop.reply.linked = linked;
    if (const auto error = perform(hop)) throw HttpError(*error);
    HttpReply& reply = hop.reply;
    hop.collect_linked();
    if (hop.wanted()) {
      hop.start();
      return std::move(reply);
    }
    const std::string location = reply.header("location");
    if (!is_redirect(reply.status) || location.empty() || request.post) throw status_error(reply);
    std::string target = redirect_target(url, location);
    if (request.stay && origin_of(target) != first) return std::move(reply);
    linked = reply.linked;
    url = std::move(target);
  }
  throw HttpError(HttpError::Kind::refused,
                  fmt::format("{}: more than {} redirects", shown_url(request.url), kMaxRedirects));
}

std::string HttpClient::text(const HttpRequest& request, std::size_t max_bytes, HttpReply* reply) {
  std::string body;
  HttpReply answer = send(
      request, [&](const HttpReply&) { body.clear(); },
      [&](std::span<const std::byte> bytes) {
        if (bytes.size() > max_bytes - body.size())
          throw HttpError(HttpError::Kind::refused, fmt::format("{} answers with more than {} MiB",
                                                                shown_url(request.url), max_bytes / (1024 * 1024)));
        body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
  if (reply != nullptr) *reply = std::move(answer);
  return body;
}

namespace {

constexpr double kFirstPause = 0.5;  // seconds
constexpr double kMaxPause = 30;     // seconds, of those that double
constexpr double kMaxAsked = 300;    // seconds that a server may ask for

}  // namespace

void Retries::run(const std::function<void()>& attempt) {
  while (true) {
    try {
      return attempt();
    } catch (const HttpError& error) {
      if (error.kind != HttpError::Kind::transient || failures_ >= max_failures_) throw;
      if (error.wait_seconds > kMaxAsked)
        throw HttpError(HttpError::Kind::refused,
                        fmt::format("{}; it asks to wait {:.0f} s", error.what(), error.wait_seconds));
      double pause = kFirstPause;
      for (int failure = 0; failure < failures_ && pause < kMaxPause; ++failure) pause *= 2;
      pause = error.wait_seconds > 0 ? error.wait_seconds : std::min(pause, kMaxPause);
      const std::chrono::duration<double> left = deadline_ - std::chrono::steady_clock::now();
      if (left.count() < pause) throw;
      ++failures_;
      if (on_note_)
        on_note_(fmt::format("{}; again in {:.1f} s ({} of {})", error.what(), pause, failures_, max_failures_));
      wait(std::chrono::duration<double>(pause));
    }
  }
}

void Retries::wait(std::chrono::duration<double> seconds) const {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop_, seconds, [] { return false; });
  if (stop_.stop_requested()) throw HttpError(HttpError::Kind::stopped, "stopped");
}

}  // namespace baton
