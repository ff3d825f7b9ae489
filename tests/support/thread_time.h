// SPDX-License-Identifier: Apache-2.0
// Processor time of the calling thread, for tests that say what an input may cost: a busy machine does not change it.
#pragma once

#include <time.h>  // clock_gettime is no function of C++

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

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

/// Processor time of a fixed piece of work of the kind that the limits of this header's users are about: many small
/// allocations and comparisons of texts.
inline double unit_seconds() {
  const double begin = thread_seconds();
  for (int round = 0; round < 3; ++round) {
    std::map<std::string, std::string> texts;
    for (int i = 0; i < 20'000; ++i)
      texts["a key that is no small string " + std::to_string(i * 7919 % 20'011)] = std::string(40, 'x');
  }
  return thread_seconds() - begin;
}

/// What a limit in seconds is multiplied by: kSlowdown, and up to 4 x of it on a processor that is slower, or busier,
/// than those that the limits were written for. Measured once in a process.
inline double slowdown() {
  constexpr double kExpected = 0.025;  // seconds of the unit, in an optimised build
  static const double factor = kSlowdown * std::clamp(unit_seconds() / (kExpected * kSlowdown), 1.0, 4.0);
  return factor;
}

/// The sizes of a night's run: BATON_TEST_NIGHTLY=1.
inline bool nightly() {
  const char* value = std::getenv("BATON_TEST_NIGHTLY");
  return value != nullptr && *value != '\0' && *value != '0';
}

}  // namespace baton::test
