// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels on the emulator, with the threads of a block in several orders.
#include "tests/engine/ops/subjects.h"

#include "engine/cuda/attention/attention.h"
#include "tests/engine/cuda/host_memory.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/shadow.h"

namespace baton::test {

std::vector<Subject> subjects() {
  std::vector<Subject> all(1);
  all[0].backend = with_host_memory(make_emulated_backend());
  all[0].matmul_rounding = [](DType weight) { return weight == DType::bf16 ? kBf16Rounding : 0.0f; };
  all[0].attention_rounding = [](const KvShape& shape) { return cuda::has_tiles(shape) ? kBf16Rounding : 0.0f; };
  all[0].most_work = 800;
  all[0].every_way = [](const std::function<void(const Way&)>& body) {
    const std::pair<simt::Order, const char*> orders[] = {{simt::Order::ascending, "ascending"},
                                                          {simt::Order::descending, "descending"},
                                                          {simt::Order::random, "random"}};
    for (const auto& [order, name] : orders) {
      if (order == simt::Order::descending && simt::Shadow::is_possible()) continue;  // it finds races in any order
      const InOrder only(order, 7);
      body({name, true});
    }
  };
  return all;
}

}  // namespace baton::test
