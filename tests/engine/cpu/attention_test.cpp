// SPDX-License-Identifier: Apache-2.0
// Batch invariance of attention; that it is right is tested in tests/engine/ops.
#include "targets.h"
#include "tests/engine/ops/attention_cases.h"

namespace baton::test {
namespace {

using namespace attending;

TEST_CASE("attention: a row has the same bits alone, in company, and for any number of threads") {
  const std::vector<std::int32_t> lengths = {40, 64, 130, 300};
  Random random(50);
  for (const Shape& shape : kShapes) {
    INFO("H " << shape.heads << " K " << shape.kv_heads << " D " << shape.head_dim << " " << name_of(shape.dtype));
    const auto one = make_cpu_backend(1);
    const Caches caches(*one, shape, lengths, 51);
    const Rows rows = scattered_rows(random, lengths, 120);
    const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
    const Values whole = attend(*one, caches, q, rows.span(), 0.3f);
    for (const int threads : {1, 2, 3, 5}) {
      const auto backend = make_cpu_backend(threads);
      for (std::int64_t begin = 0; begin < rows.size();) {
        const std::int64_t end = std::min<std::int64_t>(rows.size(), begin + random.integer(1, 40));
        Values out(end - begin, q.cols);
        backend->attention(out.view(), q.view().row_range(begin, end), caches.slabs(), caches.shape(),
                           rows.span(begin, end), 0.3f);
        INFO(threads << " threads, rows [" << begin << ", " << end << ")");
        require_same_bits(out.data, std::span(whole.data).subspan(begin * q.cols, (end - begin) * q.cols));
        begin = end;
      }
    }
  }
}

TEST_CASE("attention has the same bits on every instruction set with fused multiply-add") {
  const std::vector<std::int32_t> lengths = {70, 200};
  const auto cpu = make_cpu_backend(2);
  for (const Shape& shape : kShapes) {
    Random random(60);
    const Caches caches(*cpu, shape, lengths, 61);
    const Rows rows = scattered_rows(random, lengths, 60);
    const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
    const Values best = attend(*cpu, caches, q, rows.span(), 0.2f);
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (!is_fused(target) || !machine_is_fused()) continue;
      const OnlyTarget only(target);
      INFO(hwy::TargetName(target));
      require_same_bits(attend(*cpu, caches, q, rows.span(), 0.2f).data, best.data);
    }
  }
}

}  // namespace
}  // namespace baton::test
