// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/kv_cache.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"

namespace kv_cache_test {

using namespace baton;

TEST_CASE("a KV cache has one pair of slabs a layer, none of which overlap", "[kv]") {
  const auto backend = make_cpu_backend(1);
  const KvShape shape{2, 16, DType::bf16};
  const KvCache cache(*backend, {shape, 3}, 70);
  CHECK(cache.capacity() == 128);
  CHECK(cache.bytes() == KvCache::bytes_for(*backend, {shape, 3}, 70));
  const std::size_t slab = backend->kv_slab_bytes(shape, 128);
  for (int layer = 0; layer < 3; ++layer) {
    CHECK(static_cast<std::size_t>(cache.slab(layer).values - cache.slab(layer).keys) == slab);
    if (layer > 0) CHECK(static_cast<std::size_t>(cache.slab(layer).keys - cache.slab(layer - 1).values) == slab);
  }
}

TEST_CASE("committing backwards or beyond the capacity is refused", "[kv]") {
  const auto backend = make_cpu_backend(1);
  KvCache cache(*backend, {{1, 8, DType::f32}, 1}, 64);
  cache.commit(10);
  CHECK(cache.length() == 10);
  CHECK_THROWS_WITH(cache.commit(9), Catch::Contains("commit of 9"));
  CHECK_THROWS_WITH(cache.commit(65), Catch::Contains("expected 10 to 64"));
  CHECK(cache.length() == 10);
}

}  // namespace kv_cache_test
