// SPDX-License-Identifier: Apache-2.0
// A server of HTTP/1.1 on the loopback, for tests: each request is answered by a function, which may write in pieces,
// wait, or cut the connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace baton::test {

struct HttpAsked {
  std::string method, path, body;
  std::map<std::string, std::string> headers;  // names in lower case
};

/// The answer to one request. All members return false once the client has closed the connection.
class HttpAnswer {
 public:
  explicit HttpAnswer(int socket) : socket_(socket) {}

  bool whole(int status, const std::string& body, const std::string& headers = {}) {
    return raw("HTTP/1.1 " + std::to_string(status) + " Said\r\nContent-Type: application/json\r\n" + headers +
               "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  bool begin_stream() {
    return raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  bool event(const std::string& data) { return chunk("data: " + data + "\n\n"); }
  bool chunk(const std::string& bytes) {
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    return raw(size + bytes + "\r\n");
  }
  bool end_stream() { return raw("0\r\n\r\n"); }
  /// Ends the connection, whatever has been written.
  void cut() { cut_ = true; }
  bool is_cut() const { return cut_; }

  bool raw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return !closed();
  }
  bool closed() const {
    pollfd one{socket_, POLLIN | POLLRDHUP, 0};
    if (::poll(&one, 1, 0) <= 0) return false;
    return (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

 private:
  int socket_;
  bool cut_ = false;
};

class HttpServer {
 public:
  /// `answer` runs on a thread of each connection.
  using Handler = std::function<void(const HttpAsked& asked, HttpAnswer& answer)>;

  explicit HttpServer(Handler handler, std::uint16_t port = 0) : handler_(std::move(handler)) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(socket_, 64) != 0)
      throw std::runtime_error("the test's server cannot listen");
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept(); });
  }
  ~HttpServer() {
    closing_ = true;
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : open_) ::shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& connection : connections_) connection.join();
  }

  std::uint16_t port() const { return port_; }
  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return accepted_; }

 private:
  void accept() {
    while (!closing_) {
      const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      const int at_once = 1;  // else each small piece waits for the one before to be acknowledged
      ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
      ++accepted_;
      const std::lock_guard lock(mutex_);
      open_.push_back(connection);
      connections_.emplace_back([this, connection] {
        serve(connection);
        const std::lock_guard closing(mutex_);
        open_.erase(std::find(open_.begin(), open_.end(), connection));
        ::close(connection);
      });
    }
  }

  void serve(int connection) {
    std::string read;
    while (!closing_) {
      std::size_t head = 0;
      while ((head = read.find("\r\n\r\n")) == std::string::npos) {
        if (!more(connection, read)) return;
      }
      HttpAsked asked = parsed(read.substr(0, head + 2));
      const std::string length = asked.headers["content-length"];
      const std::size_t size = length.empty() ? 0 : std::stoul(length);
      while (read.size() < head + 4 + size) {
        if (!more(connection, read)) return;
      }
      asked.body = read.substr(head + 4, size);
      read.erase(0, head + 4 + size);
      HttpAnswer answer(connection);
      handler_(asked, answer);
      if (answer.is_cut()) return;
    }
  }

  static bool more(int connection, std::string& read) {
    char bytes[4096];
    const ssize_t count = ::recv(connection, bytes, sizeof bytes, 0);
    if (count > 0) read.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }

  static HttpAsked parsed(std::string head) {
    HttpAsked asked;
    asked.method = head.substr(0, head.find(' '));
    head.erase(0, asked.method.size() + 1);
    asked.path = head.substr(0, head.find(' '));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      asked.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return asked;
  }

  Handler handler_;
  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> closing_ = false;
  std::atomic<int> accepted_ = 0;
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> connections_;
  std::thread thread_;
};

}  // namespace baton::test
