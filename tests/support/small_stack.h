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
  REQUIRE(pthread_create(&thread, &attributes, start, &function) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace baton::test
