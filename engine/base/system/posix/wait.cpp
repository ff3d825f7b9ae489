// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/wait.h"

namespace baton {

void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept { number.wait(old); }
void wake_all(std::atomic<std::int32_t>& number) noexcept { number.notify_all(); }

}  // namespace baton
