// SPDX-License-Identifier: Apache-2.0
#include <baton/version.h>

namespace baton::inline v1 {

const char* version() noexcept { return BATON_VERSION; }

}  // namespace baton::inline v1
