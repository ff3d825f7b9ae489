// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/server.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fmt/format.h>

#include <utility>
#include <vector>

#include <baton/errors.h>

#include "sdk/serve/connection.h"
#include "sdk/serve/server_core.h"

namespace baton::serve {

namespace net = boost::asio;
using net::ip::tcp;

namespace {

using Error = boost::system::error_code;

constexpr std::chrono::milliseconds kPauseAfterError(100);  // no file descriptors are left, for example
constexpr std::chrono::seconds kLastWords(2);               // time for cancelled runs to end

net::ip::address address_of(const std::string& text) {
  Error error;
  const net::ip::address address = net::ip::make_address(text == "localhost" ? "127.0.0.1" : text, error);
  if (error) throw InputError(fmt::format("address '{}': expected an IPv4 or IPv6 address, or localhost", text));
  return address;
}

void check(const ServeOptions& options, const ServedWorkflows& workflows) {
  const auto at_least = [](const char* name, long long value, long long least) {
    if (value < least) throw InputError(fmt::format("{}: expected at least {}, found {}", name, least, value));
  };
  at_least("max_running", options.max_running, 1);
  at_least("max_waiting", options.max_waiting, 1);
  at_least("max_connections", options.max_connections, 1);
  at_least("requests_per_minute", options.requests_per_minute, 0);
  if (options.port < 0 || options.port > 65535)
    throw InputError(fmt::format("port: expected 0 to 65535, found {}", options.port));
  if (workflows.all().empty()) throw InputError("no workflow is given");
  if (options.keys.empty() && !is_loopback(options.address))
    throw InputError(
        fmt::format("address '{}' is reached by other machines, and no key is given: whoever reaches it could run the "
                    "workflows. Give keys (--key-file, or BATON_SERVE_KEY in the environment), or stay on 127.0.0.1",
                    options.address));
}

}  // namespace

const char* why_no_server() { return ""; }

bool is_loopback(const std::string& address) { return address_of(address).is_loopback(); }

struct Server::Core : ServerCore {
  Core(const Engine& of_runs, ServedWorkflows served, ServeOptions settings)
      : ServerCore(of_runs, std::move(served), std::move(settings)), acceptor(io), timer(io), pause(io) {
    const tcp::endpoint endpoint(address_of(options.address), static_cast<unsigned short>(options.port));
    try {
      acceptor.open(endpoint.protocol());
      acceptor.set_option(tcp::acceptor::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen();
    } catch (const boost::system::system_error& error) {
      throw ResourceError(ResourceError::Kind::device, fmt::format("cannot listen at {} port {}: {}", options.address,
                                                                   options.port, error.code().message()));
    }
    port = acceptor.local_endpoint().port();
    on_closed = [this] { connection_closed(); };
  }

  void accept() {
    if (accepting || draining() || static_cast<int>(connections.size()) >= options.max_connections) return;
    accepting = true;
    acceptor.async_accept([this](const Error& error, tcp::socket socket) {
      accepting = false;
      if (draining()) return;
      if (error) {
        pause.expires_after(kPauseAfterError);
        pause.async_wait([this](const Error& cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      std::make_shared<Connection>(std::move(socket), *this)->start();
      accept();
    });
  }

  void connection_closed() {
    if (draining() && connections.empty()) timer.cancel();
    accept();
  }

  /// Calls a member of every connection; it may end some of them.
  void for_each_connection(void (Connection::*call)()) {
    std::vector<std::shared_ptr<Connection>> all;
    for (Connection* connection : connections) all.push_back(connection->shared_from_this());
    for (const auto& connection : all) ((*connection).*call)();
  }

  void drain() {
    if (draining()) return;
    approvals.stop();
    Error ignored;
    acceptor.close(ignored);
    pause.cancel();
    for_each_connection(&Connection::drain);
    if (connections.empty()) return;
    log(fmt::format("stopping: {} requests may end within {} s", running + waiting,
                    std::chrono::duration_cast<std::chrono::seconds>(options.drain_timeout).count()));
    timer.expires_after(options.drain_timeout);
    timer.async_wait([this](const Error& cancelled) {
      if (!cancelled) stop_runs();
    });
  }

  void stop_runs() {
    for_each_connection(&Connection::stop_run);
    timer.expires_after(kLastWords);
    timer.async_wait([this](const Error& cancelled) {
      if (!cancelled) for_each_connection(&Connection::close);
    });
  }

  int port = 0;
  tcp::acceptor acceptor;
  net::steady_timer timer;  // limits draining
  net::steady_timer pause;  // before accepting again
  bool accepting = false;
};

Server::Server(const Engine& engine, ServedWorkflows workflows, ServeOptions options) {
  check(options, workflows);
  core_ = std::make_unique<Core>(engine, std::move(workflows), std::move(options));
}

Server::~Server() {
  core_->on_closed = nullptr;
  for (Connection* connection : core_->connections) connection->stop_run();
  core_->pool.join();
}

int Server::port() const { return core_->port; }

void Server::serve(const std::stop_token& stop) {
  const std::stop_callback on_stop(stop, [this] { net::post(core_->io, [this] { core_->drain(); }); });
  core_->accept();
  while (true) {
    try {
      core_->io.run();
      break;
    } catch (const std::exception& error) {  // ends the connection whose handler threw
      core_->log(fmt::format("a connection ended: {}", error.what()));
    }
  }
  core_->pool.join();
}

}  // namespace baton::serve
