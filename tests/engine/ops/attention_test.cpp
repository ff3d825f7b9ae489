// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/ops/attention_cases.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::attention_test {
namespace {

using namespace attending;

struct Case {
  Shape shape;
  std::span<const std::int32_t> lengths;
  std::int64_t rows;
  bool sinks = false;
};

/// Random rows of the sequences.
void compare_with_exact(const Subject& subject, const Way& way, const Case& one, std::uint32_t seed) {
  const auto& [shape, lengths, count, with_sinks] = one;
  Random random(seed);
  Backend& backend = *subject.backend;
  const Caches caches(backend, shape, lengths, seed + 1);
  const Rows rows = scattered_rows(random, lengths, count);
  const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  const std::vector<float> sinks = with_sinks ? sinks_of(shape.heads) : std::vector<float>();
  const AttentionScores scores(scale, sinks);
  const Exact exact(caches, q, rows, scores);
  const float rounding = subject.attention_rounding(caches.shape());
  std::vector<float> tolerance;
  for (std::int64_t row = 0; row < q.rows; ++row) {
    tolerance.push_back(attention_tolerance(caches, q, row, scale, rounding));
  }
  INFO(backend.info().name << " " << way.name << " H " << shape.heads << " K " << shape.kv_heads << " D "
                           << shape.head_dim << " " << name_of(shape.dtype) << " T " << count
                           << (with_sinks ? " with sinks" : ""));
  require_close(attend(backend, caches, q, rows.span(), scores), exact, [&](auto row, auto) { return tolerance[row]; });
}

TEST_CASE("attention by hand") {
  for_each_backend([](Backend& backend) {
    const KvShape shape{1, 8, DType::f32};
    const std::size_t bytes = backend.kv_slab_bytes(shape, 64);
    const Buffer keys = backend.allocate(bytes);
    const Buffer values = backend.allocate(bytes);
    const KvSlab slab{keys.data(), values.data(), 64};
    // Keys 0 and 1 differ by log(3) in their score, so they weigh 1 : 3. Key 2 would outweigh both.
    Values k(3, 8), v(3, 8), none(3, 0);
    k.at(1, 0) = std::log(3.0f);
    k.at(2, 0) = 100;
    v.at(0, 5) = 4;
    v.at(1, 5) = 8;
    v.at(2, 5) = 1000;
    const std::vector<std::int32_t> zeros = {0, 0, 0}, positions = {0, 1, 2};
    backend.kv().store_kv({&slab, 1}, shape, {zeros, positions, zeros}, k.view(), v.view(), {none.view(), none.view()});
    Values q(2, 8), out(2, 8);
    q.at(0, 0) = q.at(1, 0) = 1;
    const std::vector<std::int32_t> both = {0, 0}, position = {1, 1}, begin = {0, 1};
    backend.kv().attention(out.view(), q.view(), {&slab, 1}, shape, {both, position, begin}, 1.0f);
    REQUIRE(out.at(0, 5) == Approx(7));  // (1 * 4 + 3 * 8) / 4
    REQUIRE(out.at(1, 5) == Approx(8));  // only key 1
    REQUIRE(out.at(0, 4) == 0);
    const std::vector<float> sink = {std::log(4.0f)};  // weighs as much as keys 0 and 1 together
    backend.kv().attention(out.view(), q.view(), {&slab, 1}, shape, {both, position, begin}, {1.0f, sink});
    REQUIRE(out.at(0, 5) == Approx(3.5));       // (1 * 4 + 3 * 8) / 8
    REQUIRE(out.at(1, 5) == Approx(24.0 / 7));  // key 1 and the sink
    REQUIRE(out.at(0, 4) == 0);
    const std::vector<float> two = {1, 2};
    REQUIRE_THROWS_WITH(
        backend.kv().attention(out.view(), q.view(), {&slab, 1}, shape, {both, position, begin}, {1.0f, two}),
        Catch::Contains("attention sinks: expected 1 values, got 2"));
  });
}

TEST_CASE("attention of scattered rows agrees with double") {
  const std::vector<std::int32_t> lengths = {1, 63, 64, 65, 200};
  for_each_subject([&](Backend&, const Subject& subject, const Way& way) {
    std::uint32_t seed = 10;
    for (const Shape& shape : kShapes) {
      for (const std::int64_t count : {1, 3, 9, 20, 100}) {
        ++seed;
        if (count * shape.heads <= subject.most_work) compare_with_exact(subject, way, {shape, lengths, count}, seed);
      }
    }
  });
}

TEST_CASE("attention with sinks agrees with double, also if rows share the keys of a long sequence") {
  const std::vector<std::int32_t> lengths = {3, 130, 700};
  for_each_subject([&](Backend&, const Subject& subject, const Way& way) {
    std::uint32_t seed = 110;
    for (const Shape& shape : kShapes) {
      for (const std::int64_t count : {1, 3, 60}) {
        ++seed;
        if (count * shape.heads <= subject.most_work)
          compare_with_exact(subject, way, {shape, lengths, count, true}, seed);
      }
    }
  });
}

TEST_CASE("a sink without weight changes no bit, and one of all weight leaves nothing") {
  for_each_subject([](Backend& backend, const Subject& subject, const Way&) {
    for (const Shape& shape : kShapes) {
      if (6 * shape.heads > subject.most_work) continue;
      const std::vector<std::int32_t> lengths = {40, 700};
      const Caches caches(backend, shape, lengths, 74);
      Random random(75);
      const Rows rows = scattered_rows(random, lengths, 6);
      const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
      const std::vector<float> none(static_cast<std::size_t>(shape.heads), -1e4f), all(none.size(), 1e4f);
      const Values out = attend(backend, caches, q, rows.span(), {0.2f, none});
      require_same_bits(out.data, attend(backend, caches, q, rows.span(), 0.2f).data);
      for (const float value : attend(backend, caches, q, rows.span(), {0.2f, all}).data) REQUIRE(value == 0.0f);
    }
  });
}

TEST_CASE("operands: attention in bf16 is that in f32, rounded") {
  for_each_backend([](Backend& backend) {
    if (backend.operand_type(DType::bf16) != DType::bf16) return;
    for (const Shape& shape : {Shape{4, 2, 64, DType::bf16}, Shape{2, 2, 16, DType::f32}}) {
      const std::vector<std::int32_t> lengths = {40, 700};
      const Caches caches(backend, shape, lengths, 72);
      Random random(73);
      const Rows rows = scattered_rows(random, lengths, 12);
      const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
      const Values full = attend(backend, caches, q, rows.span(), 0.2f);
      std::vector<std::uint16_t> half(full.data.size());
      backend.kv().attention({reinterpret_cast<std::byte*>(half.data()), DType::bf16, q.rows, q.cols, q.cols}, q.view(),
                             caches.slabs(), caches.shape(), rows.span(), 0.2f);
      for (std::size_t i = 0; i < half.size(); ++i) REQUIRE(half[i] == f32_to_bf16(full.data[i]));
    }
  });
}

TEST_CASE("attention survives scores far beyond the range of exp") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : kStored) {
      const Shape shape{1, 1, 64, dtype};
      const std::vector<std::int32_t> lengths = {150};
      const Caches caches(backend, shape, lengths, 70);
      Random random(71);
      const Rows rows = scattered_rows(random, lengths, 30);
      Values q = random.values(rows.size(), 64);
      for (float& value : q.data) value *= 1000;
      const Values out = attend(backend, caches, q, rows.span(), 1.0f);
      for (const float value : out.data) REQUIRE(std::abs(value) <= caches.largest_value() * 1.0001f);
    }
  });
}

}  // namespace
}  // namespace baton::test::attention_test
