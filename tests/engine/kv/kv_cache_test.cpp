// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/kv_cache.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"

namespace kv_cache_test {

using namespace baton;

TEST_CASE("a KV cache has one pair of slabs a layer, none of which overlap", "[kv]") {
  const auto backend = make_cpu_backend(1);
  const KvShape shape{2, 16, DType::bf16};
  const KvCache cache(*backend, {.shapes = std::vector<KvShape>(3, shape)}, 70);
  CHECK(cache.capacity() == 128);
  CHECK(cache.bytes() == KvCache::bytes_for(*backend, {.shapes = std::vector<KvShape>(3, shape)}, 70));
  const std::size_t slab = backend->kv_slab_bytes(shape, 128);
  for (int layer = 0; layer < 3; ++layer) {
    CHECK(static_cast<std::size_t>(cache.slab(layer).values - cache.slab(layer).keys) == slab);
    if (layer > 0) CHECK(static_cast<std::size_t>(cache.slab(layer).keys - cache.slab(layer - 1).values) == slab);
  }
}

TEST_CASE("layers of a KV cache differ in shape, and those without KV take no memory", "[kv]") {
  const auto backend = make_cpu_backend(1);
  KvLayout layout{.shapes = {{2, 16, DType::bf16}, {0, 16, DType::bf16}, {1, 32, DType::bf16}, {0, 0, DType::bf16}}};
  CHECK((layout.layers() == 4 && layout.stores_kv(0) && !layout.stores_kv(1) && !layout.stores_kv(3)));
  CHECK((layout.row_bytes(0) == 64 && layout.row_bytes(1) == 0 && layout.row_bytes(2) == 64));
  CHECK((layout.token_bytes() == 256 && layout.max_kv_heads() == 2));
  const std::size_t slabs =
      2 * (backend->kv_slab_bytes(layout.shape(0), 128) + backend->kv_slab_bytes(layout.shape(2), 128));
  CHECK(KvCache::bytes_for(*backend, layout, 70) == slabs);
  layout.raw_keys = layout.received = true;
  layout.hidden_width = 8;
  const KvCache cache(*backend, layout, 70);
  CHECK(cache.bytes() == slabs + 128 * (64 + 64) + 128 * 8 * 2 + 2 * 128 * sizeof(AttentionSum));
  for (const int layer : {1, 3}) {
    const KvSlab none = cache.slab(layer);
    CHECK((none.keys == nullptr && none.values == nullptr && none.raw_keys == nullptr && none.capacity == 0));
  }
  const KvSlab first = cache.slab(0), other = cache.slab(2);
  CHECK(static_cast<std::size_t>(other.keys - first.keys) == 2 * backend->kv_slab_bytes(layout.shape(0), 128));
  CHECK(static_cast<std::size_t>(first.raw_keys - first.keys) == slabs);
  CHECK(other.raw_keys - first.raw_keys == 128 * 64);
  CHECK(cache.hidden().data - other.raw_keys == 128 * 64);
}

TEST_CASE("committing backwards or beyond the capacity is refused", "[kv]") {
  const auto backend = make_cpu_backend(1);
  KvCache cache(*backend, {.shapes = {{1, 8, DType::f32}}}, 64);
  cache.commit(10);
  CHECK(cache.length() == 10);
  CHECK_THROWS_WITH(cache.commit(9), Catch::Contains("commit of 9"));
  CHECK_THROWS_WITH(cache.commit(65), Catch::Contains("expected 10 to 64"));
  CHECK(cache.length() == 10);
}

}  // namespace kv_cache_test
