// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <catch2/catch.hpp>

#include "tests/support/thread_time.h"

namespace baton::test {

/// Calls the function on a thread with as much stack as the smallest that hosts have.
inline void with_small_stack(void (*function)()) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, kSlowdown > 1 ? 8u << 20 : 512u << 10) == 0);
  pthread_t thread{};
  const auto start = [](void* argument) -> void* {
    (*static_cast<void (**)()>(argument))();
    return nullptr;
  };
  // No assertion of this thread while the other one runs: Catch's are not for several threads.
  const int error = pthread_create(&thread, &attributes, start, &function);
  if (error == 0) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  REQUIRE(error == 0);
}

}  // namespace baton::test
