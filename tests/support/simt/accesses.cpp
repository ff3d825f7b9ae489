// SPDX-License-Identifier: Apache-2.0
// What -fsanitize=thread makes of the memory accesses of kernels: calls of these functions, which take the place of the
// thread sanitizer's own. Functions of the host that are compiled with kernels call them too, at other times.
#include <cstddef>
#include <cstring>

#include "tests/support/simt/shadow.h"

using baton::simt::shadow;
using baton::simt::Shadow;
using baton::simt::Touch;

#define SEEN(name, bytes, touch)                                                                               \
  void name(void* memory) {                                                                                    \
    if (Shadow::is_watched(memory)) shadow().access(memory, bytes, Touch::touch, __builtin_return_address(0)); \
  }
#define SEEN_UNALIGNED(bytes)                     \
  SEEN(__tsan_unaligned_read##bytes, bytes, read) \
  SEEN(__tsan_unaligned_write##bytes, bytes, write)
#define SEEN_OF(bytes)                  \
  SEEN(__tsan_read##bytes, bytes, read) \
  SEEN(__tsan_write##bytes, bytes, write)

// NOLINTBEGIN: the compiler chose the names
extern "C" {

void __tsan_init() { Shadow::enable(); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

SEEN_OF(1)
SEEN_OF(2)
SEEN_OF(4)
SEEN_OF(8)
SEEN_OF(16)
SEEN_UNALIGNED(2)
SEEN_UNALIGNED(4)
SEEN_UNALIGNED(8)
SEEN_UNALIGNED(16)

void __tsan_read_range(void* memory, std::size_t bytes) {
  shadow().access(memory, bytes, Touch::read, __builtin_return_address(0));
}
void __tsan_write_range(void* memory, std::size_t bytes) {
  shadow().access(memory, bytes, Touch::write, __builtin_return_address(0));
}

// clang calls these instead of the C library's.
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  shadow().access(from, bytes, Touch::read, __builtin_return_address(0));
  shadow().access(to, bytes, Touch::write, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  shadow().access(from, bytes, Touch::read, __builtin_return_address(0));
  shadow().access(to, bytes, Touch::write, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  shadow().access(to, bytes, Touch::write, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

}  // extern "C"
// NOLINTEND
