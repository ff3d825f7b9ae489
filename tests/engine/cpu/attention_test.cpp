// SPDX-License-Identifier: Apache-2.0
// Batch invariance of attention; that it is right is tested in tests/engine/ops.
#include "targets.h"
#include "tests/engine/ops/attention_cases.h"

namespace baton::test::attention_test {
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
    const std::vector<float> sinks = sinks_of(shape.heads);
    const Values whole = attend(*one, caches, q, rows.span(), {0.3f, sinks});
    for (const int threads : {1, 2, 3, 5}) {
      const auto backend = make_cpu_backend(threads);
      for (std::int64_t begin = 0; begin < rows.size();) {
        const std::int64_t end = std::min<std::int64_t>(rows.size(), begin + random.integer(1, 40));
        Values out(end - begin, q.cols);
        backend->kv().attention(out.view(), q.view().row_range(begin, end), caches.slabs(), caches.shape(),
                                rows.span(begin, end), {0.3f, sinks});
        INFO(threads << " threads, rows [" << begin << ", " << end << ")");
        require_same_bits(out.data, std::span(whole.data).subspan(begin * q.cols, (end - begin) * q.cols));
        begin = end;
      }
    }
  }
}

TEST_CASE("attention: threads share the keys of a few rows, with the bits of one thread") {
  const std::vector<std::int32_t> lengths = {1500, 200};
  const auto one = make_cpu_backend(1);
  for (const Shape& shape : kShapes) {
    const Caches caches(*one, shape, lengths, 71);
    Rows rows;  // a step: a decode row, rows of a prompt, and a row with a window
    rows.sequence = {0, 1, 1, 1, 0};
    rows.position = {1499, 197, 198, 199, 1400};
    rows.key_begin = {0, 0, 0, 0, 700};
    const Values q = Random(72).values(rows.size(), shape.heads * shape.head_dim);
    const std::vector<float> sinks = sinks_of(shape.heads);
    std::vector<AttentionSum> expected(static_cast<std::size_t>(shape.kv_heads) * caches.slabs()[0].capacity);
    const auto attend_with = [&](Backend& backend, std::int64_t count, std::vector<AttentionSum>* sums) {
      Values out(count, q.cols);
      AttentionSum* const received[] = {sums == nullptr ? nullptr : sums->data(), nullptr};
      backend.kv().attention(out.view(), q.view().row_range(0, count), caches.slabs(), caches.shape(),
                             rows.span(0, count), {0.3f, sinks}, received);
      return out;
    };
    const Values whole = attend_with(*one, rows.size(), &expected);
    std::vector<AttentionSum> first_row(expected.size());
    attend_with(*one, 1, &first_row);
    for (const int threads : {2, 3, 4, 8}) {
      INFO("H " << shape.heads << " K " << shape.kv_heads << " D " << shape.head_dim << ", " << threads << " threads");
      const auto backend = make_cpu_backend(threads);
      for (const bool records : {false, true}) {
        std::vector<AttentionSum> sums(expected.size()), row_sums(expected.size());
        require_same_bits(attend_with(*backend, rows.size(), records ? &sums : nullptr).data, whole.data);
        require_same_bits(attend_with(*backend, 1, records ? &row_sums : nullptr).data,
                          std::span(whole.data).first(static_cast<std::size_t>(q.cols)));
        if (records) CHECK(sums == expected);
        if (records) CHECK(row_sums == first_row);
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
    const std::vector<float> sinks = sinks_of(shape.heads);
    const Values best = attend(*cpu, caches, q, rows.span(), {0.2f, sinks});
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (!is_fused(target) || !machine_is_fused()) continue;
      const OnlyTarget only(target);
      INFO(hwy::TargetName(target));
      require_same_bits(attend(*cpu, caches, q, rows.span(), {0.2f, sinks}).data, best.data);
    }
  }
}

}  // namespace
}  // namespace baton::test::attention_test
