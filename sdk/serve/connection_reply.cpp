// SPDX-License-Identifier: Apache-2.0
// The replies of a connection: whole ones, streams of server-sent events, and the end.
#include <boost/asio/write.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/write.hpp>

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "sdk/serve/connection.h"
#include "sdk/serve/page.h"

namespace baton::serve {

namespace net = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kMaxUnsent = std::size_t{8} << 20;
constexpr std::chrono::seconds kLinger(2);

std::string text_of(const http::response<http::empty_body>& response) {
  std::ostringstream text;
  text << response.base();
  return std::move(text).str();
}

http::response<http::empty_body> response_of(int status, std::string_view type) {
  http::response<http::empty_body> response;
  response.version(11);
  response.result(static_cast<unsigned>(status));
  response.set(http::field::server, "baton");
  response.set(http::field::content_type, boost::beast::string_view(type.data(), type.size()));
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  return response;
}

}  // namespace

void Connection::refuse(const ApiError& error) {
  retry_s_ = error.retry_s;
  reply(error.status, error_json(error));
}

void Connection::reply(int status, std::string body, std::string_view type) {
  count(status);
  phase_ = Phase::replying;
  waits_for_run_.reset();
  keep_ = keep_ && whole_ && !core_.draining;
  http::response<http::empty_body> response = response_of(status, type);
  if (status == 401) {
    const std::string_view challenge = challenge_of(target());
    response.set(http::field::www_authenticate, boost::beast::string_view(challenge.data(), challenge.size()));
  }
  if (status == 405) {
    const std::string_view methods = methods_of(target());
    response.set(http::field::allow, boost::beast::string_view(methods.data(), methods.size()));
  }
  if (retry_s_ > 0) response.set(http::field::retry_after, std::to_string(retry_s_));
  if (type.starts_with("text/html")) response.set("Content-Security-Policy", std::string(page_policy()));
  response.content_length(body.size());
  response.keep_alive(keep_);
  send(text_of(response) + (method_ == "HEAD" ? std::string() : std::move(body)));
  complete_ = true;
}

void Connection::begin_stream() {
  http::response<http::empty_body> response = response_of(200, "text/event-stream; charset=utf-8");
  response.set("X-Accel-Buffering", "no");  // proxies pass each event on at once
  chunked_ = parser_->get().version() >= 11;
  response.chunked(chunked_);
  keep_ = keep_ && chunked_ && !core_.draining;
  response.keep_alive(keep_);
  send(text_of(response));
  tick();
}

void Connection::push(std::string_view data) {
  quiet_ = false;
  send(chunked_ ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : std::string(data));
}

void Connection::end_stream(int status) {
  count(status);
  if (status == 200) push("data: [DONE]\n\n");
  phase_ = Phase::replying;
  waits_for_run_.reset();
  alive_.cancel();
  send(chunked_ ? "0\r\n\r\n" : "");
  complete_ = true;
  if (!writing_) next();
}

/// A comment where the stream was silent, so that nobody on the way takes it for dead.
void Connection::tick() {
  if (phase_ != Phase::running) return;
  if (std::exchange(quiet_, true)) push(": the run goes on\n\n");
  quiet_ = true;
  alive_.expires_after(core_.options.keep_alive);
  alive_.async_wait([self = shared_from_this(), request = number_](const Error& error) {
    if (!error && self->number_ == request) self->tick();
  });
}

void Connection::send(std::string bytes) {
  outbox_ += bytes;
  if (outbox_.size() > kMaxUnsent) {
    core_.log(fmt::format("{} {} {}: the client does not read", method_, path_, model_));
    return close();
  }
  if (!writing_) write();
}

void Connection::write() {
  if (outbox_.empty() || phase_ == Phase::closing) return;
  writing_ = true;
  sending_ = std::exchange(outbox_, {});
  stream_.expires_after(core_.options.write_timeout);
  net::async_write(stream_, net::buffer(sending_),
                   [self = shared_from_this()](const Error& error, std::size_t) { self->on_written(error); });
}

void Connection::on_written(const Error& error) {
  writing_ = false;
  if (phase_ == Phase::closing) return;
  stream_.expires_never();
  if (error) {
    core_.log(
        fmt::format("{} {} {}: the client has gone or does not read: {}", method_, path_, model_, error.message()));
    return close();
  }
  if (!outbox_.empty()) return write();
  if (complete_) next();
}

void Connection::count(int status) {
  core_.metrics.count_request(path_, model_, status);
  const std::chrono::duration<double> since = Clock::now() - arrived_;
  core_.log(fmt::format("{} {}{}{} {} {:.3f} s", method_.empty() ? "-" : method_, path_, model_.empty() ? "" : " ",
                        model_, status, since.count()));
}

/// After a reply: the next request, or the end.
void Connection::next() {
  if (phase_ != Phase::replying) return;
  Error ignored;
  stream_.socket().cancel(ignored);  // watch()
  if (keep_ && !core_.draining) return read_head();
  close_gently();
}

/// Bytes that nobody reads would make the system drop the reply together with the connection.
void Connection::close_gently() {
  Error ignored;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  if (whole_) return close();
  stream_.expires_after(kLinger);
  discard();
}

void Connection::discard() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](const Error& error, std::size_t) {
    if (error) return self->close();
    self->discard();
  });
}

}  // namespace baton::serve
