// SPDX-License-Identifier: Apache-2.0
#include "engine/base/free_memory.h"

#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace baton {

void return_free_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace baton
