// SPDX-License-Identifier: Apache-2.0
// Waiting until an atomic number changes. Not std::atomic's wait: where the system offers none that libstdc++ 12 knows,
// as with MinGW-w64, that loses a wake-up between its look at the number and its sleep, and then sleeps for ever.
#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

/// Returns once the number is no longer `old`, or sooner; the caller looks again.
void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept;

/// Wakes all that wait for it. After the change.
void wake_all(std::atomic<std::int32_t>& number) noexcept;

}  // namespace baton
