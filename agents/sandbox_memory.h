// SPDX-License-Identifier: Apache-2.0
// The host's memory while one of its tasks has another user.
#pragma once

#include <mutex>

namespace baton {

/// A task that becomes another user makes the memory that it shares with the host closed to debuggers and core files,
/// so that this user cannot reach into it. The host's own setting returns when the object is destroyed; until then
/// other threads wait, which would otherwise restore it too early.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  int before_;
};

}  // namespace baton
