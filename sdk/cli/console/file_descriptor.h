// SPDX-License-Identifier: Apache-2.0
// Owner of a file descriptor; the runner's own, for it sees only the public headers.
#pragma once

#include <unistd.h>

#include <utility>

namespace baton::cli {

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  operator int() const { return number_; }
  /// False when closing fails: what was written may be lost.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

}  // namespace baton::cli
