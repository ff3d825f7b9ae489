// SPDX-License-Identifier: Apache-2.0
// Faults on demand: this program's operator new and pthread_create (faults.cpp) fail at the points that are armed here.
#pragma once

#include <cstdint>

namespace baton::test {

enum class Fault { allocation, thread };

/// From now on the `point`-th call of any thread fails, from 1 on, and the `count` - 1 calls behind it.
void arm(Fault fault, std::int64_t point, std::int64_t count = 1);
/// No more faults. Returns how many were injected.
std::int64_t disarm();

}  // namespace baton::test
