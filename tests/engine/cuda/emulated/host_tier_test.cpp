// SPDX-License-Identifier: Apache-2.0
// What the host tier leaves in a device's memory, and a device that has none left.
#include <catch2/catch.hpp>
#include <random>

#include "engine/kv/segment_store.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/asking.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/strict/strict.h"

namespace baton::test::host_tier_test {
namespace {

std::shared_ptr<const Segment> segment_of(Backend& backend, std::int32_t n) {
  const KvLayout layout{.shapes = std::vector<KvShape>(2, {1, 64, DType::bf16}), .raw_keys = true};
  KvCache cache(backend, layout, n);
  backend.copy_to_device(cache.slab(0).keys, std::vector<std::byte>(cache.bytes()));
  cache.commit(n);
  return std::make_shared<Segment>(backend, cache, 0, n, std::vector<std::int32_t>(static_cast<std::size_t>(n), n));
}

TEST_CASE("thousands of moves leave nothing in the device's memory", "[segments]") {
  const auto backend = make_emulated_backend();  // whose runtime reports what is left
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
    if (segment && i % 3 > 0) segment->upload(static_cast<std::int32_t>(random() % 2));  // and is freed while uploading
    if (segment && i % 3 > 1) segment->values(static_cast<std::int32_t>(random() % 2));
  }
  CHECK(store.stats().uploaded > 1000);
  CHECK(store.stats().bytes == 3 * bytes);
  store.close();
}

TEST_CASE("a layer waits for its own part of a segment that comes from host memory", "[segments]") {
  constexpr std::int32_t kLayers = 4;
  auto backend = make_emulated_backend();
  auto model = make_tiny_model(*backend, {.layers = kLayers});
  const auto bytes = static_cast<std::int64_t>(36 << 10);  // room for one answer
  StepEngine engine(std::move(backend), std::move(model), {.segment_budget_bytes = bytes});
  const std::vector<PromptPart> answers = {recorded_answer(engine, 1), recorded_answer(engine, 2)};
  for (const char* method : {"direct", "rectify", "cacheblend"}) {
    for (const PromptPart& part : answers) {
      INFO(method);
      ReuseOptions reuse;
      reuse.method = find_method(method);
      reuse.range = {1, 2, 3};
      reuse.min_tokens = 1;
      reuse.prefix = false;
      const std::int64_t moved = engine.stats().segments.uploaded;
      strict::record_sites(true);
      const Run run = ask(engine, {text(9, 7), part, text(6, 8)}, reuse, {1});
      REQUIRE(run.result.uses[1].from_segment);
      REQUIRE(engine.stats().segments.uploaded == moved + 1);
      CHECK_FALSE(engine.segment(part.segment)->is_uploading());
      CHECK(run.result.prefill.copy > 0);
      strict::record_sites(false);
      std::vector<int> between;  // launches between one time that the main stream waits and the next
      int launches = 0;
      for (const strict::Site& site : strict::sites()) {
        if (site.call == "cudaLaunchKernel") ++launches;
        if (site.call != "cudaStreamWaitEvent") continue;
        if (launches > 4) between.push_back(launches);
        launches = 0;
      }
      CHECK(between.size() == kLayers - 1);  // of each layer, before the next one is waited for
    }
  }
}

TEST_CASE("a device without memory leaves a segment in the host tier", "[segments]") {
  const auto backend = make_emulated_backend();
  const auto bytes = static_cast<std::int64_t>(segment_of(*backend, 20)->bytes());
  SegmentStore store(bytes, 2 * bytes);
  const SegmentHandle first = store.add(segment_of(*backend, 20), 2), second = store.add(segment_of(*backend, 20), 1);
  REQUIRE(store.peek(first)->on_host());
  strict::set_memory(0, 0);
  CHECK(store.read(first) == nullptr);
  CHECK(store.peek(first)->on_host());
  CHECK(store.stats().uploaded == 0);
  CHECK(store.stats().host_bytes == 2 * bytes);  // what made room for it went for nothing
  CHECK(store.stats().bytes == 0);
  CHECK(store.stats().evicted == 0);
  store.close();
}

}  // namespace
}  // namespace baton::test::host_tier_test
