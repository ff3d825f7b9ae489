// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/model_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/remote/server_api.h"

namespace baton {
namespace {

constexpr double kFirstPause = 0.25, kMaxPause = 8.0, kMaxAsked = 60.0;  // seconds
constexpr std::chrono::milliseconds kStall(30'000);                      // for small answers
constexpr std::size_t kMaxAnswer = std::size_t{32} << 20;
constexpr std::size_t kMaxAddress = 2048;

/// Without what may be secret.
std::string without_secrets(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", host), url.size());
  const std::size_t user = url.rfind('@', end);
  std::string out = url.substr(0, host);
  out += url.substr(user != std::string::npos && user >= host ? user + 1 : host);
  return out.substr(0, out.find_first_of("?#"));
}

}  // namespace

std::optional<double> AttemptPauses::next(const HttpEnd& end) {
  if (!end.passing || end.wait_seconds > kMaxAsked || ++failures_ >= kMaxAttempts) return std::nullopt;
  double pause = kFirstPause;
  for (int failure = 1; failure < failures_ && pause < kMaxPause; ++failure) pause *= 2;
  return end.wait_seconds > 0 ? end.wait_seconds : std::min(pause, kMaxPause);
}

ModelServer::ModelServer(ServerAddress address) : address_(std::move(address)) {
  std::string& url = address_.endpoint;
  const bool http = url.starts_with("http://") || url.starts_with("https://");
  const bool plain = std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c != '\x7F'; });
  if (!http || !plain || url.size() > kMaxAddress || url.find_first_of("?#") != std::string::npos)
    throw BackendError(fmt::format("invalid endpoint '{}'; expected http://host:port or https://host, without a query",
                                   http && plain ? without_secrets(url) : "..."));
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  if (address_.key.find_first_of("\r\n") != std::string::npos || address_.key.find('\0') != std::string::npos)
    throw BackendError("invalid key of a server: it holds the end of a line");
  shown_ = without_secrets(url);
  loop_ = make_http_loop();
}

HttpCall ModelServer::call(const std::string& path, std::string body) const {
  HttpCall call;
  call.url = address_.endpoint + path;
  call.body = std::move(body);
  call.key = address_.key;
  return call;
}

std::string ModelServer::problem(const HttpEnd& end) const {
  if (!end.problem.empty()) return problem(end.problem);
  const std::string words = words_of_error(end.body);
  return problem(fmt::format("it answered with status {}{}{}", end.status, words.empty() ? "" : ": ", words));
}

/// What the waiting thread and the loop share; the loop may hold it longer.
struct ModelServer::Waiting {
  std::mutex mutex;
  std::condition_variable_any changed;
  bool over = false;
  HttpEnd end;
  std::string answer;
  HttpLoop::CallId id = 0;  // the loop's thread
};

HttpEnd ModelServer::wait(const std::string& path, const std::string& body, std::string& answer,
                          const std::stop_token& stop) {
  auto waiting = std::make_shared<Waiting>();
  HttpCall request = call(path, body);
  request.stall = kStall;
  request.max_bytes = kMaxAnswer;
  request.on_bytes = [waiting](std::string_view bytes) { waiting->answer += bytes; };
  request.on_end = [waiting](HttpEnd end) {
    const std::lock_guard lock(waiting->mutex);
    waiting->end = std::move(end);
    waiting->over = true;
    waiting->changed.notify_all();
  };
  loop_->post([this, waiting, request = std::move(request)]() mutable {
    try {
      waiting->id = loop_->start(std::move(request));
    } catch (const std::exception& error) {
      const std::lock_guard lock(waiting->mutex);
      try_to([&] { waiting->end.problem = message_of(error); });
      waiting->over = true;
      waiting->changed.notify_all();
    }
  });
  std::unique_lock lock(waiting->mutex);
  if (!waiting->changed.wait(lock, stop, [&] { return waiting->over; })) {
    loop_->post([this, waiting] { loop_->cancel(waiting->id); });
    throw Interrupted();
  }
  answer = std::move(waiting->answer);
  return std::move(waiting->end);
}

JsonDocument ModelServer::fetch(const std::string& path, const std::string& body, const std::stop_token& stop) {
  AttemptPauses pauses;
  while (true) {
    std::string answer;
    const HttpEnd end = wait(path, body, answer, stop);
    if (end.ok()) {
      try {
        return parse_server_json(answer, "its answer to " + path);
      } catch (const ModelError& error) {
        throw BackendError(problem(error.what()));
      }
    }
    const std::optional<double> pause = pauses.next(end);
    if (!pause) throw BackendError(problem(end));
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, stop, std::chrono::duration<double>(*pause), [] { return false; });
    if (stop.stop_requested()) throw Interrupted();
  }
}

std::optional<JsonDocument> ModelServer::find(const std::string& path, const std::stop_token& stop) {
  std::string answer;
  const HttpEnd end = wait(path, "", answer, stop);
  if (end.status == 0 || end.status == 401 || end.status == 403 || end.status == 503 || !end.problem.empty())
    return fetch(path, "", stop);  // it is not there, loads its model, or wants a key
  if (!end.ok()) return std::nullopt;
  try {
    return parse_server_json(answer, path);
  } catch (const ModelError&) {
    return std::nullopt;
  }
}

}  // namespace baton
