// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels on the emulator, with the threads of a block in three orders.
#include "tests/engine/ops/subjects.h"

#include <cstdlib>
#include <string>

#include "engine/cuda/attention/attention.h"
#include "tests/engine/cuda/host_memory.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/streams.h"

namespace baton::test {

std::vector<Subject> subjects() {
  std::vector<Subject> all(2);
  all[0].backend = make_emulated_backend();
  all[0].matmul_rounding = [](DType weight) { return weight == DType::bf16 ? kBf16Rounding : 0.0f; };
  all[0].attention_rounding = [](const KvShape& shape) { return cuda::has_tiles(shape) ? kBf16Rounding : 0.0f; };
  all[0].most_work = 800;
  all[0].every_way = [](const std::function<void(const Way&)>& body) {
    const std::pair<simt::Order, const char*> orders[] = {{simt::Order::ascending, "ascending"},
                                                          {simt::Order::descending, "descending"},
                                                          {simt::Order::random, "random"}};
    for (const auto& [order, name] : orders) {
      const InOrder only(order, 7);
      body({name, true});
    }
  };
  // As a GPU is tested: its memory apart from the host's.
  all[1].backend = with_host_memory(make_emulated_backend());
  all[1].matmul_rounding = all[0].matmul_rounding;
  all[1].attention_rounding = all[0].attention_rounding;
  all[1].most_work = 100;
  return all;
}

/// With BATON_TEST_STREAMS=late or =some, over streams that run what they are given as late, or as soon, as that.
std::unique_ptr<Backend> make_backend_under_test() {
  const char* eagerness = std::getenv("BATON_TEST_STREAMS");
  if (eagerness == nullptr) return make_sealed_backend();
  streams().restart(5, std::string(eagerness) == "late" ? Eagerness::late : Eagerness::some);
  return make_streamed_backend();
}

}  // namespace baton::test
