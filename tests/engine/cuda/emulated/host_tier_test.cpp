// What the host tier leaves in a device's memory, and a device that has none left.
#include <catch2/catch.hpp>
#include <random>

#include "engine/kv/segment_store.h"
#include "tests/support/simt/emulated_backend.h"

namespace baton::test {
namespace {

std::shared_ptr<const Segment> segment_of(Backend& backend, std::int32_t n) {
  const KvLayout layout{.shape = {1, 64, DType::bf16}, .layers = 2, .raw_keys = true};
  KvCache cache(backend, layout, n);
  cache.commit(n);
  return std::make_shared<Segment>(backend, cache, 0, n, std::vector<std::int32_t>(static_cast<std::size_t>(n), n));
}

TEST_CASE("thousands of moves leave nothing in the device's memory", "[segments]") {
  const auto backend = make_emulated_backend();  // which aborts if they do
  const auto bytes = static_cast<std::int64_t>(segment_of(*backend, 20)->bytes());
  SegmentStore store(3 * bytes, 5 * bytes);
  std::vector<SegmentHandle> handles;
  for (std::int32_t i = 0; i < 8; ++i) handles.push_back(store.add(segment_of(*backend, 20), 1));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    SegmentHandle& handle = handles[random() % handles.size()];
    if (i % 50 == 49) handle = store.add(segment_of(*backend, 20), 1);
    const auto segment = store.read(handle);
    if (segment) REQUIRE(segment->tokens().front() == 20);
  }
  CHECK(store.stats().moved_up > 1000);
  CHECK(store.stats().bytes == 3 * bytes);
  store.close();
}

TEST_CASE("a device without memory leaves a segment in the host tier", "[segments]") {
  const auto backend = make_sealed_backend();
  const auto bytes = static_cast<std::int64_t>(segment_of(*backend, 20)->bytes());
  SegmentStore store(bytes, 2 * bytes);
  const SegmentHandle first = store.add(segment_of(*backend, 20), 2), second = store.add(segment_of(*backend, 20), 1);
  REQUIRE(store.peek(first)->on_host());
  const auto left = static_cast<std::size_t>(backend->info().free_bytes);
  const Buffer all = backend->allocate(left / 256 * 256);
  CHECK(store.read(first) == nullptr);
  CHECK(store.peek(first)->on_host());
  CHECK(store.stats().moved_up == 0);
  CHECK(store.stats().host_bytes == 2 * bytes);  // what made room for it went for nothing
  CHECK(store.stats().bytes == 0);
  CHECK(store.stats().evicted == 0);
  store.close();
}

}  // namespace
}  // namespace baton::test
