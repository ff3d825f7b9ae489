// SPDX-License-Identifier: Apache-2.0
// What libhwy.so holds of the parts we use: which of the compiled instruction sets this processor has. For
// distributions that ship only the shared library.
#include <hwy/highway.h>

#include <atomic>

namespace hwy {
namespace {

std::atomic<int64_t> for_test{0};

int64_t of_processor() {
#if HWY_ARCH_X86_64
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return HWY_SCALAR | (avx2 ? HWY_AVX2 : 0) | (avx3 ? HWY_AVX3 : 0);
#else
  return HWY_SCALAR | HWY_STATIC_TARGET;
#endif
}

}  // namespace

int64_t SupportedTargets() {
  const int64_t wanted = for_test;
  return wanted != 0 ? wanted : of_processor();
}

void SetSupportedTargetsForTest(int64_t targets) {
  for_test = targets;
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
