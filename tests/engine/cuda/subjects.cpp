// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on the first GPU. Without one there is nothing to try, and every test says so.
#include "tests/engine/ops/subjects.h"

#include <cstdio>

#include "engine/cuda/host/cuda.h"
#include "tests/engine/cuda/host_memory.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/temp_folder.h"

namespace baton::test {

std::unique_ptr<Backend> make_backend_under_test() {
  // What one backend measures of products, the others take: on its own each may choose other algorithms, and other
  // bits.
  static const TempFolder measured;
  try {
    return make_cuda_backend(0, measured.path());
  } catch (const BackendError& missing) {
    std::printf("SKIPPED: %s\n", missing.what());  // CTest lists the test as not run
    return nullptr;
  }
}

std::vector<Subject> subjects() {
  std::vector<Subject> all(1);
  all[0].backend = make_backend_under_test();
  if (all[0].backend == nullptr) return {};
  all[0].backend = with_host_memory(std::move(all[0].backend));
  all[0].matmul_rounding = [](DType weight) { return weight == DType::bf16 ? kBf16Rounding : 0.0f; };
  all[0].attention_rounding = [](const KvShape& shape) { return shape.dtype == DType::bf16 ? kBf16Rounding : 0.0f; };
  return all;
}

}  // namespace baton::test
