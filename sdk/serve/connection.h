// SPDX-License-Identifier: Apache-2.0
// A client's connection: reads its requests one after the other, with the headers as Beast has read them, and writes
// their replies. What it waits for holds it; it ends when it waits for nothing. For the server's thread.
#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "sdk/serve/admission.h"
#include "sdk/serve/chat_request.h"
#include "sdk/serve/server_core.h"

namespace baton::serve {

template <typename View>
std::string_view view_of(const View& text) {
  return {text.data(), text.size()};
}

/// Views of the parser's memory.
template <typename Parser>
RequestHead head_of(const Parser& parser) {
  using Field = boost::beast::http::field;
  const auto& request = parser.get();
  RequestHead head;
  head.method = view_of(request.method_string());
  head.target = view_of(request.target());
  head.host = view_of(request[Field::host]);
  head.origin = view_of(request[Field::origin]);
  head.authorization = view_of(request[Field::authorization]);
  head.api_key = view_of(request["x-api-key"]);
  head.content_type = view_of(request[Field::content_type]);
  head.content_encoding = view_of(request[Field::content_encoding]);
  if (const auto length = parser.content_length()) head.content_length = *length;
  return head;
}

/// Throws ApiError if the fields leave in doubt where the body ends, so that a proxy before this server might take
/// some of it for another request, or for none: both a length and chunks, several lengths, one that is no plain number,
/// and codings other than chunked.
template <typename Parser>
void check_framing(const Parser& parser) {
  using Field = boost::beast::http::field;
  const auto& request = parser.get();
  const auto lengths = request.equal_range(Field::content_length);
  const auto codings = request.equal_range(Field::transfer_encoding);
  const auto refuse = [](const char* expected) { throw ApiError(400, "malformed_request", expected); };
  if (codings.first != codings.second) {
    const bool chunked =
        std::next(codings.first) == codings.second && boost::beast::iequals(codings.first->value(), "chunked");
    if (!chunked || request.version() < 11) refuse("Transfer-Encoding: expected chunked alone, and HTTP 1.1");
    if (lengths.first != lengths.second) refuse("expected Content-Length or Transfer-Encoding, found both");
  }
  if (lengths.first == lengths.second) return;
  const std::string_view length = view_of(lengths.first->value());
  const bool plain =
      !length.empty() && std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!plain || std::next(lengths.first) != lengths.second) refuse("Content-Length: expected one number");
}

/// Reads a request from the bytes of a connection, within the limit of a header. The request lies in its own memory.
class RequestReader {
 public:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  explicit RequestReader(std::size_t max_header_bytes);
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// Begins the next request. Bytes that were received behind the last one are its first.
  void begin();
  /// Takes the received bytes for the header. Returns true if it has ended or `error` says why it cannot be read; false
  /// if more bytes must be received.
  bool take_head(Error& error);
  /// Memory for the next bytes; received() says how many were written there.
  boost::asio::mutable_buffer space();
  void received(std::size_t bytes) { buffer_.commit(bytes); }
  void discard() { buffer_.clear(); }

  std::string_view target() const { return view_of(parser_->get().target()); }
  Parser& parser() { return *parser_; }
  boost::beast::flat_buffer& buffer() { return buffer_; }  // bytes that were received and not yet parsed

 private:
  std::size_t max_header_bytes_;
  boost::beast::flat_buffer buffer_;  // bounded
  std::function<void(std::uint64_t size, boost::beast::string_view extensions, Error& error)> on_chunk_;
  std::optional<Parser> parser_;
  std::size_t head_bytes_ = 0;       // bytes of the request's header so far
  std::size_t extension_bytes_ = 0;  // bytes of its chunks' extensions
};

/// A request in the log and in the metrics. Its path and model are the server's own words.
class RequestLog {
 public:
  explicit RequestLog(ServerCore& core) : core_(core) {}

  void begin();
  void arrive(std::string_view method);  // its header has ended now
  void name_path(std::string path) { path_ = std::move(path); }
  void name_model(std::string model) { model_ = std::move(model); }
  void count(int status);  // logs it too
  void say(std::string_view what);
  /// The client has gone: counted without a reply.
  void count_gone();
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  bool wants_no_body() const { return method_ == "HEAD"; }

 private:
  ServerCore& core_;
  std::string method_, path_, model_;
  std::chrono::steady_clock::time_point arrived_;
};

/// The form of a stream of server-sent events: in chunks, unless the client speaks HTTP 1.0.
class StreamForm {
 public:
  /// In which interface the request came; null: OpenAI's completions.
  void speak(std::shared_ptr<Dialect> dialect) { dialect_ = std::move(dialect); }
  void begin(bool chunked) { chunked_ = chunked; }
  std::string event(std::string_view data);  // the bytes of an event
  std::string chunk(const std::string& json) {
    return dialect_ ? bytes(dialect_->chunk(json)) : event("data: " + json + "\n\n");
  }
  /// The bytes behind the last chunk of an answer.
  std::string done() { return dialect_ ? bytes(dialect_->end()) : event("data: [DONE]\n\n"); }
  /// The body of a whole reply.
  std::string whole(int status, std::string json) const { return dialect_ ? dialect_->whole(status, json) : json; }
  std::string end() const { return chunked_ ? "0\r\n\r\n" : ""; }
  /// Whether no event was made since the last call.
  bool was_quiet() { return std::exchange(quiet_, true); }

 private:
  std::string bytes(const std::vector<StreamEvent>& events);

  std::shared_ptr<Dialect> dialect_;
  bool chunked_ = false;
  bool quiet_ = false;
};

/// The bytes of a reply that have not been sent. One piece is sent at a time.
class Outbox {
 public:
  /// Returns false if more bytes wait than a client may leave unread.
  bool add(std::string_view bytes);
  /// Begins to send what waits. The result is valid until sent().
  boost::asio::const_buffer begin_sending();
  void sent() { sending_now_ = false; }
  /// Nothing is added any more, until reset().
  void complete() { complete_ = true; }
  void reset() { complete_ = false; }
  bool is_empty() const { return waiting_.empty(); }
  bool is_sending() const { return sending_now_; }
  bool is_complete() const { return complete_; }

 private:
  std::string waiting_, sending_;
  bool sending_now_ = false;
  bool complete_ = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// The core outlives the connection.
  Connection(boost::asio::ip::tcp::socket socket, ServerCore& core);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Reads the next request.
  void start();
  /// Closes if no request has come in yet; otherwise after the reply.
  void drain();
  /// Cancels the run, whose client is then told so.
  void stop_run();
  /// At once; a run that goes on is cancelled.
  void close();

 private:
  using Error = boost::system::error_code;
  using Clock = std::chrono::steady_clock;
  enum class Phase : std::uint8_t { idle, reading, running, replying, closing };

  void take_head();
  void on_head(const Error& error);
  void on_admitted();
  void read_body();
  void on_body(const Error& error);
  void dispatch();
  void run(ChatRequest request);
  void watch();
  void on_readable(std::uint64_t request);

  void refuse(const ApiError& error);
  /// `retry_s`: for a client that is refused: ApiError::retry_s.
  void reply(int status, std::string body, std::string_view type = "application/json", int retry_s = 0);
  void begin_stream();
  void end_stream(int status);
  void tick();
  void send(std::string_view bytes);
  void write();
  void on_written(const Error& error);
  void next();
  void discard();

  ServerCore& core_;
  boost::beast::tcp_stream stream_;
  RequestReader reader_;
  boost::asio::steady_timer alive_;  // signs of life in a stream
  std::string peer_;                 // its address

  Phase phase_ = Phase::idle;
  Admitted admitted_;
  RequestLog log_;
  std::uint64_t number_ = 0;                   // number of the request
  std::stop_source stop_;                      // stops the run
  std::shared_ptr<Connection> waits_for_run_;  // itself
  bool whole_ = false;                         // the request was read to its end
  bool keep_ = false;                          // the connection stays open
  StreamForm events_;
  Outbox outbox_;
};

}  // namespace baton::serve
