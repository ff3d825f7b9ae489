// SPDX-License-Identifier: Apache-2.0
// Batch invariance of the operations that work row by row.
#include "targets.h"
#include "tests/engine/ops/fixtures.h"

namespace baton::test::rows_test {
namespace {

TEST_CASE("row operations: the same bits alone, for any number of threads, on every fused instruction set") {
  Random random(23);
  const std::int64_t rows = 90, width = 80, heads = 13, cols = heads * width;
  const Values x = random.values(rows, cols), delta = random.values(rows, cols),
               gate_up = random.values(rows, 2 * cols);
  const std::vector<float> weight = random.vector(cols), head_weight = random.vector(width);
  const auto [cos, sin] = random_angles(random, rows, width / 2);
  const auto all = [&](Backend& backend, std::int64_t begin, std::int64_t end) {
    const auto part = [&](const Values& values) { return values.view().row_range(begin, end); };
    Values a(end - begin, cols), b(a), c(a), d(a), e(a), f(a);
    std::copy_n(&x.data[begin * cols], b.data.size(), b.data.begin());
    backend.rms_norm(a.view(), part(x), weight, 1e-5f);
    backend.add_rms_norm(c.view(), b.view(), part(delta), weight, 1e-5f);
    backend.head_rms_norm(c.view(), head_weight, 1e-5f);
    backend.rope(c.view(), width, {part(cos), part(sin)});
    backend.silu_mul(d.view(), part(gate_up));
    backend.gelu_mul(e.view(), part(gate_up));
    backend.silu_mul(f.view(), part(gate_up), {1.2f, 1.702f});
    backend.scale(e.view(), 3.3f);
    backend.soft_cap(e.view(), 1.5f);
    for (const Values* more : {&b, &c, &d, &e, &f}) a.data.insert(a.data.end(), more->data.begin(), more->data.end());
    return a.data;
  };
  const std::vector<float> whole = all(*make_cpu_backend(1), 0, rows);
  for (const int threads : {1, 2, 3, 5}) {
    const auto backend = make_cpu_backend(threads);
    require_same_bits(all(*backend, 0, rows), whole);
    for (const std::int64_t row : {0, 44, 89}) {
      const std::vector<float> alone = all(*backend, row, row + 1);
      for (int op = 0; op < 6; ++op) {
        require_same_bits(std::span(alone).subspan(op * cols, cols),
                          std::span(whole).subspan((op * rows + row) * cols, cols));
      }
    }
  }
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!is_fused(target) || !machine_is_fused()) continue;
    const OnlyTarget only(target);
    INFO(hwy::TargetName(target));
    require_same_bits(all(*make_cpu_backend(1), 0, rows), whole);
  }
}

}  // namespace
}  // namespace baton::test::rows_test
