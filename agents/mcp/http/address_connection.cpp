// SPDX-License-Identifier: Apache-2.0
// The connection to an address (MCP's "streamable HTTP"): each message is a POST, whose answer is a message, or a
// stream of events that holds it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>

#include "agents/mcp/connection.h"
#include "engine/base/curl_handles.h"
#include "engine/base/errors.h"
#include "engine/base/event_stream.h"
#include "engine/base/system/process.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

constexpr long kConnectMs = 10000;
constexpr std::chrono::milliseconds kEndTime(1000);  // for telling the server that the session ends
constexpr std::size_t kMaxSession = 1024;            // characters of a session's name
constexpr int kMaxAnswers = 16;                      // to requests of the server's, in one answer of its
constexpr std::string_view kJson = "application/json", kEvents = "text/event-stream";

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

class AddressConnection : public McpConnection {
 public:
  explicit AddressConnection(const McpServerSpec& spec) : spec_(spec) { start_curl(); }
  ~AddressConnection() override;

  std::string request(const std::string& method, const std::string& params, const McpWait& wait) override;
  void notify(const std::string& method, const McpWait& wait) override {
    post(rpc_notification(method, "{}"), std::nullopt, wait);
  }
  void agree(const std::string& version) override {
    const std::lock_guard lock(mutex_);
    version_ = version;
  }
  std::string ended() const override {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  struct Exchange;

  std::optional<std::string> post(const std::string& message, std::optional<std::int64_t> id, const McpWait& wait);
  void perform(Exchange& exchange, const std::string* message, const McpWait& wait);
  CurlHeaders headers() const;
  void check_status(const Exchange& exchange, const std::string& session);
  void adopt(const std::string& session);
  void cancel(std::int64_t id);

  const McpServerSpec spec_;
  mutable std::mutex mutex_;
  std::string session_;  // that the server has named
  std::string version_;
  std::string ended_;
  std::int64_t last_id_ = 0;
};

/// One POST, as libcurl's callbacks see it.
struct AddressConnection::Exchange {
  Exchange(std::optional<std::int64_t> of, const McpWait& wait)
      : id(of), time(wait), events([this](std::string_view data) { take(data); }) {}

  std::function<void(const RpcMessage& asked)> on_request;  // the server asks something
  std::optional<std::int64_t> id;                           // id of the request whose answer is waited for
  McpWait time;
  CURL* handle = nullptr;
  long status = 0;
  std::string type;     // type of the body
  std::string session;  // that this answer names
  std::string body;     // that is no stream of events
  EventStream events;
  std::size_t bytes = 0;
  std::optional<std::string> answer;
  std::string problem;
  int answers = 0;  // to requests of the server's
  std::exception_ptr thrown;

  /// A message of the server's. Its requests are answered only while it answers one of ours, or its answers to answers
  /// could go on for ever.
  void take(std::string_view text) {
    if (answer) return;
    RpcMessage message;
    try {
      message = read_rpc(text);
    } catch (const std::exception&) {
      return;
    }
    if (message.kind == RpcMessage::Kind::request) {
      if (id && ++answers <= kMaxAnswers) on_request(message);
    } else if (message.id && message.id == id) {
      if (message.kind == RpcMessage::Kind::error) problem = message.error;
      answer = std::string(text);
    }
  }

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) {
    Exchange& exchange = *static_cast<Exchange*>(self);
    std::string_view line(data, size * count);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !try_to([&] {
          const std::string name = lower(line.substr(0, colon));
          std::string_view value = line.substr(colon + 1);
          value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
          value = value.substr(0, value.find_first_of("\r\n"));
          if (name == "content-type") exchange.type = lower(value.substr(0, value.find(';')));
          if (name == "mcp-session-id" && value.size() <= kMaxSession) exchange.session = value;
        }))
      return colon == std::string_view::npos ? size * count : 0;
    return size * count;
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    Exchange& exchange = *static_cast<Exchange*>(self);
    const std::string_view bytes(data, size * count);
    try {
      curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &exchange.status);
      exchange.bytes += bytes.size();
      if (exchange.status == 200 && exchange.type == kEvents) {
        exchange.events.add(bytes);
        if (exchange.events.held() > kMaxMcpMessage) throw too_long();
      } else {
        exchange.body += bytes;
        if (exchange.body.size() > kMaxMcpMessage) throw too_long();
      }
      if (exchange.bytes > kMaxMcpMessage + kMaxMcpUnasked) throw too_long();
    } catch (...) {
      exchange.thrown = std::current_exception();
      return 0;
    }
    return exchange.answer ? 0 : bytes.size();  // what follows the answer is not waited for
  }

  static McpError too_long() { return McpError(fmt::format("it answers with more than {} MiB", kMaxMcpMessage >> 20)); }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Exchange*>(self)->time.stop.stop_requested() ? 1 : 0;
  }
};

AddressConnection::~AddressConnection() {
  if (session_.empty() || !ended_.empty()) return;
  try_to([&] {
    Exchange exchange(std::nullopt, {});
    perform(exchange, nullptr, {Clock::now() + kEndTime, {}});
  });
}

CurlHeaders AddressConnection::headers() const {
  CurlHeaders list;
  const auto add = [&](const std::string& line) { add_header(list, line); };
  add("Content-Type: application/json");
  add("Accept: application/json, text/event-stream");
  add("Expect:");  // no question before a long message
  if (!session_.empty()) add("Mcp-Session-Id: " + session_);
  if (!version_.empty()) add("MCP-Protocol-Version: " + version_);
  for (const auto& [name, value] : spec_.headers) add(name + ": " + value);
  return list;
}

/// Without a message: the end of the session.
void AddressConnection::perform(Exchange& exchange, const std::string* message, const McpWait& wait) {
  const CurlHandle handle(curl_easy_init());
  if (!handle) throw std::bad_alloc();
  exchange.handle = handle.get();
  CurlHeaders list;
  {
    const std::lock_guard lock(mutex_);
    list = headers();
  }
  std::array<char, CURL_ERROR_SIZE> words{};
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle.get(), option, value); };
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(wait.due - Clock::now()).count();
  set(CURLOPT_URL, spec_.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "https,http");
  set(CURLOPT_FOLLOWLOCATION, 0L);  // the headers of the file are for this address alone
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::clamp<std::int64_t>(left, 1, std::numeric_limits<int>::max())));
  set(CURLOPT_ERRORBUFFER, words.data());
  set(CURLOPT_HTTPHEADER, list.get());
  set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Exchange::on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
  if (message != nullptr) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(message->size()));
    set(CURLOPT_POSTFIELDS, message->c_str());
  } else {
    set(CURLOPT_CUSTOMREQUEST, "DELETE");
  }
  CURLcode code = CURLE_OK;
  without_pipe_signal([&] { code = curl_easy_perform(handle.get()); });
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &exchange.status);
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  if (wait.stop.stop_requested()) throw Interrupted();
  if (code == CURLE_OK || exchange.answer) return;
  if (code == CURLE_OPERATION_TIMEDOUT && exchange.status != 0) throw McpError("its answer did not come in time");
  if (code == CURLE_OPERATION_TIMEDOUT) throw McpError("it gave no answer in time");
  throw McpError(said(words.front() != '\0' ? words.data() : curl_easy_strerror(code)));
}

void AddressConnection::adopt(const std::string& session) {
  const std::lock_guard lock(mutex_);
  if (session_.empty()) session_ = session;
}

void AddressConnection::check_status(const Exchange& exchange, const std::string& session) {
  if (exchange.status >= 200 && exchange.status < 300) return;
  std::string why = fmt::format("it answered with status {}", exchange.status);
  try {
    if (const RpcMessage message = read_rpc(exchange.body); !message.error.empty()) why += ": " + message.error;
  } catch (const std::exception&) {
    if (const std::string words = said(exchange.body, 200); !words.empty()) why += ": " + words;
  }
  if (exchange.status == 404 && !session.empty()) {
    why = "it has ended the session";
    const std::lock_guard lock(mutex_);
    ended_ = why;
  }
  throw McpError(why);
}

std::optional<std::string> AddressConnection::post(const std::string& message, std::optional<std::int64_t> id,
                                                   const McpWait& wait) {
  Exchange exchange(id, wait);
  exchange.on_request = [&](const RpcMessage& asked) {
    adopt(exchange.session);
    const Clock::time_point due = std::min(Clock::now() + kEndTime, wait.due);
    try_to([&] { post(rpc_answer(asked), std::nullopt, {due, wait.stop}); });
  };
  std::string session;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_.empty()) throw McpError(ended_);
    session = session_;
  }
  perform(exchange, &message, wait);
  check_status(exchange, session);
  adopt(exchange.session);
  if (!id) return std::nullopt;
  if (!exchange.answer && exchange.type == kJson) exchange.take(exchange.body);
  if (!exchange.answer && exchange.type != kJson && exchange.type != kEvents)
    throw McpError(
        fmt::format("its answer has the type '{}'; expected {} or {}", said(exchange.type, 60), kJson, kEvents));
  if (!exchange.answer) throw McpError("its answer holds no message that answers the request");
  if (!exchange.problem.empty()) throw McpError(fmt::format("it answered with: {}", exchange.problem));
  return exchange.answer;
}

std::string AddressConnection::request(const std::string& method, const std::string& params, const McpWait& wait) {
  std::int64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_id_;
  }
  try {
    return *post(rpc_request(id, method, params), id, wait);
  } catch (const Interrupted&) {
    if (method != kInitialize) cancel(id);
    throw;
  } catch (const McpError& error) {
    if (Clock::now() >= wait.due && method != kInitialize) cancel(id);
    throw McpError(fmt::format("'{}': {}", method, error.what()));
  }
}

/// Tells the server that nobody waits any more; losing the connection does not say so.
void AddressConnection::cancel(std::int64_t id) {
  const std::string params = fmt::format(R"({{"requestId":{}}})", id);
  try_to([&] {
    post(rpc_notification("notifications/cancelled", params), std::nullopt, {Clock::now() + kEndTime / 4, {}});
  });
}

}  // namespace

std::unique_ptr<McpConnection> connect_to_address(const McpServerSpec& spec) {
  return std::make_unique<AddressConnection>(spec);
}

}  // namespace baton
