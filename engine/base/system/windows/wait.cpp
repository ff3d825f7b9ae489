// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/wait.h"

#include <windows.h>

namespace baton {

static_assert(sizeof(std::atomic<std::int32_t>) == sizeof(std::int32_t));

void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept {
  auto* address = const_cast<std::atomic<std::int32_t>*>(&number);  // it is only read
  WaitOnAddress(address, &old, sizeof(old), INFINITE);
}

void wake_all(std::atomic<std::int32_t>& number) noexcept { WakeByAddressAll(&number); }

}  // namespace baton
