// SPDX-License-Identifier: Apache-2.0
// Processor time of the calling thread, for tests that say what an input may cost: a busy machine does not change it.
#pragma once

#include <time.h>  // clock_gettime is no function of C++

#include <cstdlib>

namespace baton::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 15.0;  // of sanitizers, about
#elif defined(BATON_TEST_EMULATED)
constexpr double kSlowdown = 30.0;  // of qemu, about
#elif defined(__OPTIMIZE__)
constexpr double kSlowdown = 1.0;
#else
constexpr double kSlowdown = 6.0;
#endif

inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The sizes of a night's run: BATON_TEST_NIGHTLY=1.
inline bool nightly() {
  const char* value = std::getenv("BATON_TEST_NIGHTLY");
  return value != nullptr && *value != '\0' && *value != '0';
}

}  // namespace baton::test
