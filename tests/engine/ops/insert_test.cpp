// SPDX-License-Identifier: Apache-2.0
// Keys and values on their way into a cache, corrected, rotated, in several layers at once.
#include <deque>

#include "tests/engine/ops/reuse_cases.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::insert_test {
namespace {

using namespace reusing;

TEST_CASE("insert_kv adds weighted offsets before it rounds, row by row") {
  for_each_backend([](Backend& backend) {
    const KvShape shape{1, 8, DType::bf16};
    const Slab cache(backend, shape, 64);
    Values k(2, 8, 1.0f), v(2, 8, 2.0f), cos(2, 1, 1.0f), sin(2, 1, 0.0f);
    std::vector<std::uint16_t> offset(3 * 16);
    for (std::size_t i = 0; i < offset.size(); ++i) offset[i] = f32_to_bf16(static_cast<float>(i / 16 * 4));  // 0, 4, 8
    const ConstTensorView all =
        BasicView<const std::byte>{reinterpret_cast<const std::byte*>(offset.data()), DType::bf16, 3, 16, 16};
    const std::vector<std::int32_t> first = {1, 2}, second = {0, 1};
    const KvCorrection corrections[] = {{{&all, 1}, first, 0.25f}, {{&all, 1}, second, 0.5f}};
    const ConstTensorView keys = k.view(), values = v.view();
    backend.kv().insert_kv({&cache.slab, 1}, shape, 31, {&keys, 1}, {&values, 1}, corrections,
                           {cos.view(), sin.view()});
    Values k_back(2, 8), v_back(2, 8);
    backend.kv().load_kv(k_back.view(), v_back.view(), cache.slab, shape, 31);
    REQUIRE(k_back.data == std::vector<float>{2, 2, 2, 2, 2, 2, 2, 2, 5, 5, 5, 5, 5, 5, 5, 5});
    REQUIRE(v_back.data == std::vector<float>{3, 3, 3, 3, 3, 3, 3, 3, 6, 6, 6, 6, 6, 6, 6, 6});
  });
}

/// Rows for the layers of a cache, and what is added to them; layer 0 is left alone by every second correction.
struct Placed {
  static constexpr int kLayers = 3;
  Placed(Random& random, const KvShape& shape_in, std::int32_t begin_in, std::int64_t rows, int anchors, DType given,
         std::int64_t gap)
      : shape(shape_in),
        begin(begin_in),
        angles(random_angles(random, rows, shape.head_dim == 48 ? 10 : shape.head_dim / 2)) {
    const std::int64_t cols = shape.kv_heads * shape.head_dim;
    for (int layer = 0; layer < kLayers && given != DType::f16; ++layer) {
      for (auto* all : {&k, &v}) {
        all->emplace_back(random.values(rows, cols + gap), given);
        (all == &k ? k_views : v_views).push_back(all->back().view().col_range(gap, gap + cols));
      }
    }
    offset_views.resize(static_cast<std::size_t>(anchors));
    for (int a = 0; a < anchors; ++a) {
      const std::int64_t m = 10 + a;
      std::vector<std::int32_t>& row = counterparts.emplace_back();
      for (int i = 0; i < rows; ++i) row.push_back(static_cast<std::int32_t>(random.integer(0, m)));
      for (int layer = 0; layer < kLayers; ++layer) {
        offsets.emplace_back(random.values(m, 2 * cols + gap), DType::bf16);
        offset_views[static_cast<std::size_t>(a)].push_back(
            layer == 0 && a % 2 == 1 ? ConstTensorView{} : offsets.back().view().col_range(gap, gap + 2 * cols));
      }
    }
    for (std::size_t a = 0; a < counterparts.size(); ++a)
      corrections.push_back({offset_views[a], counterparts[a], 0.3f + 0.1f * static_cast<float>(a)});
  }
  /// All of the layers' slabs.
  std::vector<std::byte> run(Backend& backend) const {
    std::deque<Slab> caches;
    std::vector<KvSlab> slabs;
    for (int layer = 0; layer < kLayers; ++layer) {
      slabs.push_back(caches.emplace_back(backend, shape, 128).slab);
      if (layer == 2) slabs.back().raw_keys = nullptr;
    }
    backend.kv().insert_kv(slabs, shape, begin, k_views, v_views, corrections,
                           {angles.first.view(), angles.second.view()});
    std::vector<std::byte> all;
    const std::int64_t cols = shape.kv_heads * shape.head_dim;
    for (const Slab& cache : caches) {
      Values keys(128, cols), values(128, cols);
      backend.kv().load_kv(keys.view(), values.view(), cache.slab, shape, 0);
      for (const std::span<const std::byte> bytes :
           {std::as_bytes(std::span(keys.data)), std::as_bytes(std::span(values.data)), cache.raw()})
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  KvShape shape;
  std::int32_t begin;
  std::pair<Values, Values> angles;
  std::deque<Elements> k, v, offsets;
  std::vector<ConstTensorView> k_views, v_views;
  std::vector<std::vector<ConstTensorView>> offset_views;
  std::deque<std::vector<std::int32_t>> counterparts;
  std::vector<KvCorrection> corrections;
};

TEST_CASE("kv: what is placed in several layers at once comes back as in the reference") {
  Random random(33);
  const auto reference = make_reference_backend();
  const auto backends = subjects();
  for (const DType dtype : kStored) {
    for (const std::int32_t width : {8, 48, 128}) {
      for (const auto& [begin, rows, anchors, with_base] :
           {std::tuple(0, 64, 3, true), std::tuple(31, 70, 1, true), std::tuple(33, 1, 2, false),
            std::tuple(5, 40, 0, true), std::tuple(64, 33, 20, false), std::tuple(32, 64, 0, true)}) {
        for (const bool stored : {false, true}) {
          INFO("D " << width << " " << name_of(dtype) << " begin " << begin << " rows " << rows
                    << " of the cache's type " << stored);
          const DType given = !with_base ? DType::f16 : stored ? dtype : DType::f32;  // f16: none
          const Placed placed(random, {2, width, dtype}, begin, rows, anchors, given, rows == 70 ? 3 : 0);
          const std::vector<std::byte> expected = placed.run(*reference);
          for (const Subject& subject : backends) {
            subject.every_way([&](const Way& way) {
              if (way.fused) REQUIRE(placed.run(*subject.backend) == expected);
            });
          }
        }
      }
    }
  }
}

TEST_CASE("kv: what is placed without corrections is what store_kv stores") {
  Random random(34);
  for_each_backend([&](Backend& backend) {
    const KvShape shape{2, 64, DType::bf16};
    const Values k = random.values(70, 128), v = random.values(70, 128);
    const auto [cos, sin] = random_angles(random, 70, 32);
    Index position(70), none(70, 0);
    std::iota(position.begin(), position.end(), 31);
    const Slab stored(backend, shape, 128), placed(backend, shape, 128);
    backend.kv().store_kv({&stored.slab, 1}, shape, {none, position, none}, k.view(), v.view(),
                          {cos.view(), sin.view()});
    const ConstTensorView keys = k.view(), values = v.view();
    backend.kv().insert_kv({&placed.slab, 1}, shape, 31, {&keys, 1}, {&values, 1}, {}, {cos.view(), sin.view()});
    REQUIRE(same(stored.bytes(), placed.bytes()));
  });
}

}  // namespace
}  // namespace baton::test::insert_test
