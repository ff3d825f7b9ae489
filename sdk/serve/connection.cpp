// SPDX-License-Identifier: Apache-2.0
// The requests of a connection are read, checked and run; its replies are whole ones or streams of server-sent events.
#include "sdk/serve/connection.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <limits>
#include <sstream>
#include <utility>

#include "sdk/serve/served_run.h"
#include "sdk/serve/server_core.h"

namespace baton::serve {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

constexpr std::size_t kMaxMethod = 16;  // bytes, for the log
constexpr std::size_t kReadBytes = 4096;
constexpr std::size_t kMaxUnsent = std::size_t{8} << 20;
constexpr std::chrono::seconds kLinger(2);
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

bool is_of_http(const boost::system::error_code& error) {
  return error.category() == http::make_error_code(http::error::end_of_stream).category();
}

/// Whether a line of a header goes on in the next one: obsolete, and others on the way may take that for another field.
bool is_folded(std::string_view lines) {
  return lines.find("\r\n ") != std::string_view::npos || lines.find("\r\n\t") != std::string_view::npos;
}

}  // namespace

RequestReader::RequestReader(std::size_t max_header_bytes)
    : max_header_bytes_(max_header_bytes),
      buffer_(max_header_bytes + kReadBytes),
      on_chunk_([this](std::uint64_t /*size*/, beast::string_view extensions, Error& error) {
        extension_bytes_ += extensions.size();
        if (extension_bytes_ > max_header_bytes_) error = http::error::buffer_overflow;
      }) {}

void RequestReader::begin() {
  head_bytes_ = extension_bytes_ = 0;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(max_header_bytes_));
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());  // that of the header's length: admit()
  parser_->on_chunk_header(on_chunk_);
}

/// Takes the header piece by piece. Beast's own reading would unfold lines unnoticed, and would hold each piece of a
/// header alone against the limit.
bool RequestReader::take_head(Error& error) {
  if (buffer_.size() == 0) return false;
  const net::const_buffer held = buffer_.data();
  const std::size_t used = parser_->put(held, error);
  if (is_folded({static_cast<const char*>(held.data()), used})) error = http::error::bad_obs_fold;
  head_bytes_ += used;
  buffer_.consume(used);
  const bool ends_later = error == http::error::need_more;
  if (head_bytes_ + (ends_later ? buffer_.size() : 0) > max_header_bytes_) {
    error = http::error::header_limit;
    return true;
  }
  return !ends_later;
}

net::mutable_buffer RequestReader::space() { return buffer_.prepare(kReadBytes); }

void RequestLog::begin() {
  method_.clear();
  path_ = "other";
  model_.clear();
}

void RequestLog::arrive(std::string_view method) {
  arrived_ = std::chrono::steady_clock::now();
  method_ = method.substr(0, kMaxMethod);
}

void RequestLog::count(int status) {
  core_.metrics.count_request(path_, model_, status);
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - arrived_;
  core_.log(fmt::format("{} {}{}{} {} {:.3f} s", method_.empty() ? "-" : method_, path_, model_.empty() ? "" : " ",
                        model_, status, since.count()));
}

void RequestLog::say(std::string_view what) { core_.log(fmt::format("{} {} {}: {}", method_, path_, model_, what)); }

void RequestLog::count_gone() {
  say("the client has gone");
  core_.metrics.count_request(path_, model_, 499);
}

std::string StreamForm::event(std::string_view data) {
  quiet_ = false;
  return chunked_ ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : std::string(data);
}

std::string StreamForm::bytes(const std::vector<StreamEvent>& events) {
  std::string out;
  for (const StreamEvent& one : events) out += event(fmt::format("event: {}\ndata: {}\n\n", one.name, one.json));
  return out;
}

bool Outbox::add(std::string_view bytes) {
  waiting_ += bytes;
  return waiting_.size() <= kMaxUnsent;
}

net::const_buffer Outbox::begin_sending() {
  sending_now_ = true;
  sending_ = std::exchange(waiting_, {});
  return net::buffer(sending_);
}

Connection::Connection(net::ip::tcp::socket socket, ServerCore& core)
    : core_(core), stream_(std::move(socket)), reader_(core.options.max_header_bytes), alive_(core.io), log_(core) {
  core_.connections.insert(this);
  Error ignored;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
  const auto peer = stream_.socket().remote_endpoint(ignored);
  if (!ignored) peer_ = peer.address().to_string();
}

Connection::~Connection() {
  stop_.request_stop();
  core_.connections.erase(this);
  if (core_.on_closed) core_.on_closed();
}

void Connection::drain() {
  if (phase_ == Phase::idle) close();
}

void Connection::stop_run() { stop_.request_stop(); }

void Connection::close() {
  phase_ = Phase::closing;
  stop_.request_stop();
  alive_.cancel();
  stream_.close();
  waits_for_run_.reset();
}

void Connection::start() {
  phase_ = Phase::idle;
  ++number_;
  stop_ = std::stop_source();
  whole_ = keep_ = false;
  outbox_.reset();
  events_.speak(nullptr);
  log_.begin();
  reader_.begin();
  stream_.expires_after(core_.options.header_timeout);
  take_head();
}

void Connection::take_head() {
  Error found;
  if (reader_.take_head(found)) return on_head(found);
  stream_.async_read_some(reader_.space(), [self = shared_from_this()](const Error& error, std::size_t count) {
    if (error) return self->on_head(error);
    self->reader_.received(count);
    self->take_head();
  });
}

void Connection::on_head(const Error& error) {
  if (phase_ == Phase::closing) return;
  log_.arrive("");
  if (error) {
    phase_ = Phase::reading;
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return refuse({431, "header_too_large",
                     fmt::format("expected a header of at most {} bytes", core_.options.max_header_bytes)});
    if (is_of_http(error) && error != http::error::end_of_stream && error != http::error::partial_message)
      return refuse({400, "malformed_request", fmt::format("the header is not HTTP: {}", error.message())});
    return close();
  }
  phase_ = Phase::reading;
  keep_ = reader_.parser().keep_alive();
  const RequestHead head = head_of(reader_.parser());
  log_.arrive(head.method);
  if (head.target.starts_with(path_of(Endpoint::messages))) events_.speak(messages_dialect());
  try {
    check_framing(reader_.parser());
    admitted_ = admit(head, core_.keys, core_.options);
    log_.name_path(std::string(path_of(admitted_.endpoint)));
    on_admitted();
  } catch (const ApiError& refusal) {
    refuse(refusal);
  }
}

/// Runs the checks that are left before the body is read.
void Connection::on_admitted() {
  if (runs(admitted_.endpoint)) {
    const std::string client = core_.keys.empty() ? peer_ : fmt::format("key {}", admitted_.key);
    if (const int seconds = core_.rate.wait_seconds(client, Clock::now()); seconds > 0)
      throw ApiError(429, "rate_limit_exceeded",
                     fmt::format("expected at most {} requests a minute; try again in {} s",
                                 core_.options.requests_per_minute, seconds),
                     "", seconds);
    if (core_.waiting >= core_.options.max_waiting)
      throw ApiError(503, "overloaded", fmt::format("{} requests wait already; try again later", core_.waiting.load()),
                     "", 1);
  }
  reader_.parser().body_limit(core_.options.max_body_bytes);
  if (reader_.parser().is_done()) return on_body({});
  if (beast::iequals(reader_.parser().get()[http::field::expect], "100-continue")) {
    stream_.expires_after(core_.options.write_timeout);
    net::async_write(stream_, net::buffer(kContinue), [self = shared_from_this()](const Error& error, std::size_t) {
      if (error) return self->close();
      self->read_body();
    });
    return;
  }
  read_body();
}

void Connection::read_body() {
  stream_.expires_after(core_.options.body_timeout);
  http::async_read(stream_, reader_.buffer(), reader_.parser(),
                   [self = shared_from_this()](const Error& error, std::size_t) { self->on_body(error); });
}

void Connection::on_body(const Error& error) {
  if (phase_ == Phase::closing) return;
  stream_.expires_never();
  if (error == http::error::body_limit)
    return refuse(
        {413, "body_too_large", fmt::format("expected a body of at most {} bytes", core_.options.max_body_bytes)});
  if (error == http::error::buffer_overflow)
    return refuse(
        {400, "malformed_request",
         fmt::format("expected chunk extensions and trailers of at most {} bytes", core_.options.max_header_bytes)});
  if (error && is_of_http(error) && error != http::error::partial_message && error != http::error::end_of_stream)
    return refuse({400, "malformed_request", fmt::format("the body is not HTTP: {}", error.message())});
  if (error) return close();
  whole_ = true;
  try {
    dispatch();
  } catch (const ApiError& refusal) {
    refuse(refusal);
  } catch (const std::exception& failure) {
    core_.log(failure.what());
    refuse({500, "internal_error", "the request failed; the server's log says why"});
  }
}

void Connection::dispatch() {
  const auto run_as = [this](const TranslatedRequest& request) {
    events_.speak(request.dialect);
    run(read_chat(request.chat, core_.workflows));
  };
  switch (admitted_.endpoint) {
    case Endpoint::page:
      return reply(200, std::string(page()), "text/html; charset=utf-8");
    case Endpoint::health:
      return reply(core_.draining() ? 503 : 200, core_.draining() ? R"({"status":"stopping"})" : R"({"status":"ok"})");
    case Endpoint::metrics:
      return reply(200, core_.metrics.text(core_.load()), "text/plain; version=0.0.4; charset=utf-8");
    case Endpoint::models:
      return reply(200, models_json(core_.workflows, core_.started));
    case Endpoint::model: {
      const ServedWorkflow* workflow = core_.workflows.find(admitted_.name);
      if (workflow == nullptr)
        throw ApiError(404, "model_not_found",
                       fmt::format("unknown model; expected one of: {}", core_.workflows.names()));
      return reply(200, model_json(*workflow, core_.started));
    }
    case Endpoint::chat:
      return run(read_chat(reader_.parser().get().body(), core_.workflows));
    case Endpoint::completion:
      return run(read_completion(reader_.parser().get().body(), core_.workflows));
    case Endpoint::responses:
      return run_as(read_response_request(reader_.parser().get().body()));
    case Endpoint::messages:
      return run_as(read_messages_request(reader_.parser().get().body()));
    case Endpoint::approvals:
      return reply(200, core_.approvals.list_json());
    case Endpoint::approval:
      return reply(200, core_.approvals.answer(admitted_.name, reader_.parser().get().body()));
  }
}

void Connection::run(ChatRequest request) {
  phase_ = Phase::running;
  log_.name_model(request.workflow->name);
  reader_.parser().get().body() = {};
  waits_for_run_ = shared_from_this();
  watch();
  ++core_.waiting;
  const auto to_connection = [&core = core_, weak = weak_from_this(), number = number_](auto call) {
    net::post(core.io, [weak, number, call = std::move(call)]() mutable {
      const std::shared_ptr<Connection> self = weak.lock();
      if (self && self->phase_ == Phase::running && self->number_ == number) call(*self);
    });
  };
  ReplySink sink;
  sink.reply = [to_connection](int status, std::string json) {
    to_connection(
        [status, json = std::move(json)](Connection& self) { self.reply(status, self.events_.whole(status, json)); });
  };
  sink.begin = [to_connection] { to_connection([](Connection& self) { self.begin_stream(); }); };
  sink.data = [to_connection](std::string json) {
    to_connection([json = std::move(json)](Connection& self) { self.send(self.events_.chunk(json)); });
  };
  sink.end = [to_connection](int status) { to_connection([status](Connection& self) { self.end_stream(status); }); };
  RunSettings settings{core_.options.run_timeout, log_.arrived(), stop_.get_token(),
                       [&core = core_](const std::string& line) { core.log(line); }, core_.options.follow_run};
  net::post(core_.pool, [&core = core_, request = std::move(request), settings = std::move(settings),
                         sink = std::move(sink), to_connection] {
    --core.waiting;
    if (settings.stop.stop_requested())  // the client has gone, or the server stops
      return sink.reply(503, error_json({503, "cancelled", "the server stops, and did not begin the run"}));
    ++core.running;
    try {
      answer(core.engine, request, settings, core.metrics, core.approvals, sink);
    } catch (const std::exception& error) {  // out of memory: what is left to send is lost
      core.log(error.what());
      to_connection([](Connection& self) { self.close(); });
    }
    --core.running;
  });
}

/// While a run goes on, a client that closes the connection ends it.
void Connection::watch() {
  stream_.socket().async_wait(net::ip::tcp::socket::wait_read,
                              [self = shared_from_this(), request = number_](const Error& error) {
                                if (!error) self->on_readable(request);
                              });
}

void Connection::on_readable(std::uint64_t request) {
  if (phase_ != Phase::running || number_ != request) return;
  char byte = 0;
  Error error;
  stream_.socket().non_blocking(true, error);  // what is asynchronous never waits anyway
  stream_.socket().receive(net::buffer(&byte, 1), net::socket_base::message_peek, error);
  if (error == net::error::would_block || error == net::error::try_again || error == net::error::interrupted)
    return watch();
  if (!error) return;  // the next request; that the client goes is noticed when the reply is written
  log_.count_gone();
  close();
}

namespace {

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
  reply(error.status, events_.whole(error.status, error_json(error)), "application/json", error.retry_s);
}

void Connection::reply(int status, std::string body, std::string_view type, int retry_s) {
  log_.count(status);
  phase_ = Phase::replying;
  waits_for_run_.reset();
  keep_ = keep_ && whole_ && !core_.draining();
  http::response<http::empty_body> response = response_of(status, type);
  if (status == 401) {
    const std::string_view challenge = challenge_of(reader_.target());
    response.set(http::field::www_authenticate, boost::beast::string_view(challenge.data(), challenge.size()));
  }
  if (status == 405) {
    const std::string_view methods = methods_of(reader_.target());
    response.set(http::field::allow, boost::beast::string_view(methods.data(), methods.size()));
  }
  if (retry_s > 0) response.set(http::field::retry_after, std::to_string(retry_s));
  if (type.starts_with("text/html")) response.set("Content-Security-Policy", std::string(page_policy()));
  response.content_length(body.size());
  response.keep_alive(keep_);
  send(text_of(response) + (log_.wants_no_body() ? std::string() : std::move(body)));
  outbox_.complete();
}

void Connection::begin_stream() {
  http::response<http::empty_body> response = response_of(200, "text/event-stream; charset=utf-8");
  response.set("X-Accel-Buffering", "no");  // proxies pass each event on at once
  const bool chunked = reader_.parser().get().version() >= 11;
  events_.begin(chunked);
  response.chunked(chunked);
  keep_ = keep_ && chunked && !core_.draining();
  response.keep_alive(keep_);
  send(text_of(response));
  tick();
}

void Connection::end_stream(int status) {
  log_.count(status);
  if (status == 200) send(events_.done());
  phase_ = Phase::replying;
  waits_for_run_.reset();
  alive_.cancel();
  send(events_.end());
  outbox_.complete();
  if (!outbox_.is_sending()) next();
}

/// Sends a comment if the stream was silent, so that no proxy takes it for dead.
void Connection::tick() {
  if (phase_ != Phase::running) return;
  if (events_.was_quiet()) {
    send(events_.event(": the run goes on\n\n"));
    events_.was_quiet();  // this sign of life is no event of the run
  }
  alive_.expires_after(core_.options.keep_alive);
  alive_.async_wait([self = shared_from_this(), request = number_](const Error& error) {
    if (!error && self->number_ == request) self->tick();
  });
}

void Connection::send(std::string_view bytes) {
  if (!outbox_.add(bytes)) {
    log_.say("the client does not read");
    return close();
  }
  if (!outbox_.is_sending()) write();
}

void Connection::write() {
  if (outbox_.is_empty() || phase_ == Phase::closing) return;
  stream_.expires_after(core_.options.write_timeout);
  net::async_write(stream_, outbox_.begin_sending(),
                   [self = shared_from_this()](const Error& error, std::size_t) { self->on_written(error); });
}

void Connection::on_written(const Error& error) {
  outbox_.sent();
  if (phase_ == Phase::closing) return;
  stream_.expires_never();
  if (error) {
    log_.say(fmt::format("the client has gone or does not read: {}", error.message()));
    return close();
  }
  if (!outbox_.is_empty()) return write();
  if (outbox_.is_complete()) next();
}

/// After a reply: the next request, or the end.
void Connection::next() {
  if (phase_ != Phase::replying) return;
  Error ignored;
  stream_.socket().cancel(ignored);  // watch()
  if (keep_ && !core_.draining()) return start();
  // Bytes that nobody reads would make the system drop the reply together with the connection.
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  if (whole_) return close();
  stream_.expires_after(kLinger);
  discard();
}

void Connection::discard() {
  reader_.discard();
  stream_.async_read_some(reader_.space(), [self = shared_from_this()](const Error& error, std::size_t) {
    if (error) return self->close();
    self->discard();
  });
}

}  // namespace baton::serve
