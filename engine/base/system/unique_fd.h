// SPDX-License-Identifier: Apache-2.0
// UniqueFd: the owner of a file descriptor.
#pragma once

#include <utility>

namespace baton {

/// False when closing fails, so that written data may be lost.
bool close_descriptor(int fd) noexcept;

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Closes the descriptor. Returns false when closing fails, so that written data may be lost.
  bool close() { return close_descriptor(std::exchange(fd_, -1)); }
  void reset() {
    if (fd_ >= 0) close();
  }

 private:
  int fd_ = -1;
};

}  // namespace baton
