// SPDX-License-Identifier: Apache-2.0
// A client for tests of the server, over a plain socket: it can send what no library would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::test {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // of chunks, without their sizes

  std::string field(const std::string& name) const {
    const auto at = fields.find(name);
    return at == fields.end() ? "" : at->second;
  }
};

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      throw std::runtime_error("the test cannot connect");
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  /// False: the server takes nothing any more.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// The server reads the end of what was sent; replies still arrive.
  void end_sending() const { ::shutdown(socket_, SHUT_WR); }

  static std::string request(const std::string& method, const std::string& target, const std::string& body = "",
                             const std::string& more = "") {
    std::string text = method + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more;
    if (!body.empty())
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + body;
  }

  /// The next reply; status 0: the server closed the connection before one was whole.
  HttpReply receive() {
    HttpReply reply;
    std::string head;
    if (!until("\r\n\r\n", head)) return reply;
    read_head(head, reply);
    if (reply.field("transfer-encoding") == "chunked") {
      for (std::string chunk = next_chunk(); !chunk.empty(); chunk = next_chunk()) reply.body += chunk;
    } else if (!bytes(std::strtoul(reply.field("content-length").c_str(), nullptr, 10), reply.body)) {
      reply.status = 0;
    }
    return reply;
  }

  HttpReply ask(const std::string& method, const std::string& target, const std::string& body = "",
                const std::string& more = "") {
    send(request(method, target, body, more));
    return receive();
  }

  /// Of a stream, after its head.
  HttpReply receive_head() {
    HttpReply reply;
    std::string head;
    if (until("\r\n\r\n", head)) read_head(head, reply);
    return reply;
  }
  /// Empty: the stream, or the connection, has ended.
  std::string next_chunk() {
    std::string line, chunk, end;
    if (!until("\r\n", line)) return {};
    bytes(std::strtoul(line.c_str(), nullptr, 16), chunk);
    bytes(2, end);
    return chunk;
  }

  /// All that comes until the server closes the connection.
  std::string rest() {
    while (more()) {
    }
    return std::exchange(held_, {});
  }

  /// True where the server closes the connection within the time, and sends nothing before.
  bool is_closed_within(std::chrono::milliseconds time) {
    pollfd poll{socket_, POLLIN, 0};
    if (!held_.empty() || ::poll(&poll, 1, static_cast<int>(time.count())) <= 0) return false;
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_PEEK) <= 0;
  }

 private:
  bool more() {
    char buffer[4096];
    const auto size = ::recv(socket_, buffer, sizeof(buffer), 0);
    if (size > 0) held_.append(buffer, static_cast<std::size_t>(size));
    return size > 0;
  }
  bool until(std::string_view end, std::string& out) {
    std::size_t at = 0;
    while ((at = held_.find(end)) == std::string::npos) {
      if (!more()) return false;
    }
    out = held_.substr(0, at + end.size());
    held_.erase(0, at + end.size());
    return true;
  }
  bool bytes(std::size_t count, std::string& out) {
    while (held_.size() < count) {
      if (!more()) return false;
    }
    out = held_.substr(0, count);
    held_.erase(0, count);
    return true;
  }
  static void read_head(const std::string& head, HttpReply& reply) {
    reply.status = std::atoi(head.c_str() + head.find(' '));
    for (std::size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const std::size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      reply.fields[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }

  int socket_;
  std::string held_;
};

/// The data of a stream's events.
inline std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> events;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    const std::string_view one = stream.substr(0, end);
    if (one.starts_with("data: ")) events.emplace_back(one.substr(6));
    stream.remove_prefix(end == std::string_view::npos ? stream.size() : end + 2);
  }
  return events;
}

}  // namespace baton::test
