// SPDX-License-Identifier: Apache-2.0
// A backend whose views are host memory, over one whose views are not: before each operation all that it may read goes
// to the device, after it all that it may have written comes back. So the tests of operations, which look at memory and
// fill it as they like, run over a device unchanged.
#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace baton::test {

/// `device` must outlive nothing: it is owned.
std::unique_ptr<Backend> with_host_memory(std::unique_ptr<Backend> device);

}  // namespace baton::test
