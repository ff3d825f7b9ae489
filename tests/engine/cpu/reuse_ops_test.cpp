// SPDX-License-Identifier: Apache-2.0
// Batch invariance of the attention received; what it is, is tested in tests/engine/ops.
#include "targets.h"
#include "tests/engine/ops/reuse_cases.h"

namespace baton::test::reuse_ops_test {
namespace {

using namespace reusing;

TEST_CASE("attention received: the same integers for any split into calls, threads, and instruction sets", "[reuse]") {
  for (const auto& [heads, shape] : kGroups) {
    Random random(120);
    const auto one = make_cpu_backend(1);
    const Caches caches(*one, shape, kLengths, 121);
    const Rows rows = scattered(random, kLengths, 150);
    const Values q = random.values(150, heads * shape.head_dim);
    const std::vector<float> sinks(static_cast<std::size_t>(heads), 0.5f);
    Sums whole(caches);
    attend(*one, caches, q, rows, 0, 150, whole.pointers, sinks);
    INFO("H " << heads << " K " << shape.kv_heads << " D " << shape.head_dim << " " << name_of(shape.dtype));
    for (const int threads : {1, 2, 5}) {
      const auto backend = make_cpu_backend(threads);
      Sums parts(caches);
      for (std::int64_t begin = 0; begin < 150;) {
        const std::int64_t end = std::min<std::int64_t>(150, begin + random.integer(1, 50));
        attend(*backend, caches, q, rows, begin, end, parts.pointers, sinks);
        begin = end;
      }
      REQUIRE(parts.sums == whole.sums);
    }
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (!is_fused(target) || !machine_is_fused()) continue;
      const OnlyTarget only(target);
      Sums sums(caches);
      attend(*one, caches, q, rows, 0, 150, sums.pointers, sinks);
      INFO(hwy::TargetName(target));
      REQUIRE(sums.sums == whole.sums);
    }
  }
}

}  // namespace
}  // namespace baton::test::reuse_ops_test
