// SPDX-License-Identifier: Apache-2.0
// The threads of the process, for tests that say none stays behind.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace baton::test {

inline std::ptrdiff_t threads_of_process() {
  using namespace std::chrono_literals;
  // The first thread of a process starts one more under ThreadSanitizer, which stays.
  static const bool started = (std::thread([] {}).join(), std::this_thread::sleep_for(10ms), true);
  static_cast<void>(started);
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// True when the process comes to have no more than `count` threads, within ten seconds.
inline bool threads_end(std::ptrdiff_t count) {
  using namespace std::chrono_literals;
  for (int i = 0; i < 5000 && threads_of_process() > count; ++i) std::this_thread::sleep_for(2ms);
  return threads_of_process() <= count;
}

}  // namespace baton::test
