// SPDX-License-Identifier: Apache-2.0
// Segments in two tiers, against a model of them; who holds one keeps it where it is. The CPU stands for the device: a
// store does not ask whose memory it copies from.
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <random>
#include <thread>

#include "engine/cpu/cpu.h"
#include "engine/kv/segment_store.h"
#include "engine/loop/step_engine.h"
#include "tests/support/asking.h"

namespace baton::test::host_tier_test {
namespace {

const KvLayout kLayout{.shapes = std::vector<KvShape>(2, {1, 8, DType::f32}), .raw_keys = true};
constexpr std::int64_t kTokenBytes = 2 * 2 * 8 * 4 + 4;  // 2 layers of keys and values, an id

/// A segment of n tokens whose memory is all `fill`.
std::shared_ptr<const Segment> segment_of(Backend& backend, std::int32_t n, std::int32_t fill) {
  KvCache cache(backend, kLayout, n);
  const std::vector<float> all(cache.bytes() / sizeof(float), static_cast<float>(fill));
  backend.copy_to_device(cache.slab(0).keys, std::as_bytes(std::span(all)));
  cache.commit(n);
  return std::make_shared<Segment>(backend, cache, 0, n, std::vector<TokenId>(static_cast<std::size_t>(n), fill));
}

bool holds(const Segment& segment, std::int32_t fill) {
  const auto is_fill = [&](float x) { return x == static_cast<float>(fill); };
  for (std::int32_t layer = 0; layer < kLayout.layers(); ++layer) {
    const ConstTensorView keys = segment.raw_keys(layer);
    const std::vector<float> values = values_on_host(segment, layer);
    if (!std::all_of(keys.f32(), keys.f32() + keys.rows * keys.cols, is_fill)) return false;
    if (!std::all_of(values.begin(), values.end(), is_fill)) return false;
  }
  return segment.tokens().front() == fill;
}

/// What a store is to do, said with less.
class Model {
 public:
  struct Item {
    std::int64_t bytes = 0, readers = 0;
    std::uint64_t last_use = 0;
    char tier = 'd';  // device, host, or neither
    bool held = false;
  };
  Model(std::int64_t budget, std::int64_t host_budget) : budget_(budget), host_budget_(host_budget) {}

  int add(std::int64_t bytes, std::int64_t readers) {
    items[++last_] = {bytes, readers, ++clock_, 'd', false};
    make_room(last_);
    make_room(0);
    return last_;
  }
  bool read(int id) {
    Item& item = items.at(id);
    item.last_use = ++clock_;
    item.readers = std::max<std::int64_t>(0, item.readers - 1);
    if (item.tier != 'h') return item.tier == 'd';
    std::int64_t needed = item.bytes + charged;
    for (const auto& [other, it] : items) needed += it.tier == 'd' && it.held ? it.bytes : 0;
    if (needed > budget_) return false;
    item.tier = 'd';
    ++up;
    make_room(id);
    return true;
  }
  void make_room(int but) {
    while (sum('d') + charged > budget_) {
      Item* const item = least('d', but);
      if (item == nullptr) return;
      item->tier = 'h';
      while (sum('h') > host_budget_) {
        least('h', 0)->tier = '-';
        ++evicted;
      }
      down += item->tier == 'h';
    }
  }
  std::int64_t sum(char tier) const {
    std::int64_t bytes = 0;
    for (const auto& [id, item] : items) bytes += item.tier == tier ? item.bytes : 0;
    return bytes;
  }
  std::map<int, Item> items;
  std::int64_t charged = 0, evicted = 0, down = 0, up = 0;

 private:
  Item* least(char tier, int but) {
    Item* least = nullptr;
    for (auto& [id, item] : items) {
      if (item.tier != tier || item.held || id == but) continue;
      if (least == nullptr || std::pair(item.readers, item.last_use) < std::pair(least->readers, least->last_use))
        least = &item;
    }
    return least;
  }
  std::int64_t budget_, host_budget_;
  std::uint64_t clock_ = 0;
  int last_ = 0;
};

TEST_CASE("two tiers, thousands of operations: as a simple model says, and within both budgets", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  for (const std::int64_t host_tokens : {200, 45, 7}) {
    constexpr std::int64_t kBudget = 100 * kTokenBytes;
    SegmentStore store(kBudget, host_tokens * kTokenBytes);
    Model model(kBudget, host_tokens * kTokenBytes);
    std::map<int, SegmentHandle> handles;
    std::map<int, std::shared_ptr<const Segment>> held;  // only of those on the device
    std::mt19937_64 random(static_cast<std::uint64_t>(host_tokens));
    int refused = 0;
    const auto any = [&] {
      auto at = handles.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random() % handles.size()));
      return at->first;
    };
    for (int i = 0; i < 10000; ++i) {
      const std::uint64_t what = random() % 100;
      if (handles.empty() || what < 15) {
        const auto n = static_cast<std::int32_t>(1 + random() % 40);
        const auto readers = static_cast<std::int64_t>(random() % 3);
        const int id = model.add(n * kTokenBytes, readers);
        handles[id] = store.add(segment_of(*backend, n, id), readers);
      } else if (what < 70) {
        const int id = any();
        const bool expected = model.read(id);
        const auto segment = store.read(handles[id]);
        REQUIRE((segment != nullptr) == expected);
        refused += !expected && model.items[id].tier == 'h';
        if (segment) REQUIRE((holds(*segment, id) && !segment->on_host()));
        if (segment && random() % 3 == 0) {
          held[id] = segment;
          model.items[id].held = true;
        }
      } else if (what < 76) {
        if (held.size() < 3) continue;
        model.items[held.begin()->first].held = false;
        held.erase(held.begin());
      } else if (what < 90) {
        if (handles.size() < 12) continue;
        const int id = any();
        held.erase(id);
        model.items.erase(id);
        handles.erase(id);
      } else {
        const std::int64_t bytes = static_cast<std::int64_t>(random() % 30) * kTokenBytes - model.charged;
        model.charged += bytes;
        store.charge(bytes);
        store.settle();
        model.make_room(0);
      }
      const SegmentStoreStats stats = store.stats();
      REQUIRE(stats.bytes == model.sum('d'));
      REQUIRE(stats.host_bytes == model.sum('h'));
      REQUIRE(stats.host_bytes <= host_tokens * kTokenBytes);
      REQUIRE((stats.bytes + stats.charged_bytes <= kBudget || !held.empty()));
      REQUIRE(stats.downloaded == model.down);
      REQUIRE(stats.uploaded == model.up);
      REQUIRE(stats.evicted == model.evicted);
      for (const auto& [id, handle] : handles) {
        const auto segment = store.peek(handle);
        const char tier = !segment ? '-' : segment->on_host() ? 'h' : 'd';
        REQUIRE(tier == model.items[id].tier);
      }
    }
    INFO(model.down << " down, " << model.up << " up, " << model.evicted << " evicted, " << refused << " without room");
    CHECK(model.evicted > 100);
    CHECK((host_tokens < 40 || model.up > 100));
    CHECK((host_tokens < 40 || refused > 10));
    for (const auto& [id, segment] : held) CHECK(holds(*segment, id));
    held.clear();
    handles.clear();
    const SegmentStoreStats stats = store.stats();
    CHECK(stats.bytes + stats.host_bytes + stats.segments + stats.host_segments == 0);
    CHECK(stats.host_peak_bytes <= host_tokens * kTokenBytes);
  }
}

TEST_CASE("a segment that somebody holds stays, and then goes", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(10 * kTokenBytes, 20 * kTokenBytes);
  const SegmentHandle first = store.add(segment_of(*backend, 10, 1), 5);
  auto reading = store.read(first);
  const std::byte* const place = reading->raw_keys(0).data;
  const SegmentHandle second = store.add(segment_of(*backend, 10, 2), 1);  // no room but in the host tier
  CHECK(store.peek(second)->on_host());
  CHECK(store.read(second) == nullptr);  // and none now
  CHECK(store.peek(first)->raw_keys(0).data == place);
  CHECK(holds(*reading, 1));
  CHECK(store.stats().bytes == 10 * kTokenBytes);
  reading.reset();
  CHECK(holds(*store.read(second), 2));
  CHECK(store.peek(first)->on_host());
  CHECK(holds(*store.peek(first), 1));  // to look at, where it is
  CHECK(holds(*store.read(first), 1));
  CHECK(store.stats().evicted == 0);
  CHECK(store.stats().uploaded == 2);
  CHECK(store.stats().downloaded == 3);

  std::weak_ptr<const Segment> below = store.peek(second), above = store.peek(first);
  store.close();
  CHECK((below.expired() && above.expired()));
  CHECK((store.read(first) == nullptr && store.read(second) == nullptr));
  const SegmentStoreStats stats = store.stats();
  CHECK(stats.bytes + stats.host_bytes + stats.segments + stats.host_segments == 0);
}

TEST_CASE("handles are dropped and looked at by other threads while segments move", "[reuse][store][stress]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(60 * kTokenBytes, 60 * kTokenBytes);
  std::mutex mutex;
  std::vector<std::pair<SegmentHandle, std::int32_t>> shared;
  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0, dropped = 0;
  std::vector<std::thread> others;
  for (std::uint64_t t = 0; t < 2; ++t) {
    others.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (!done) {
        std::pair<SegmentHandle, std::int32_t> one;
        {
          const std::lock_guard lock(mutex);
          if (shared.empty()) continue;
          const auto at = shared.begin() + static_cast<std::ptrdiff_t>(random() % shared.size());
          one = *at;
          if (shared.size() > 12) shared.erase(at);
        }
        if (const auto segment = store.peek(one.first); segment && segment->tokens().front() != one.second) ++wrong;
        if (store.stats().host_bytes > 60 * kTokenBytes) ++wrong;
        ++dropped;
      }
    });
  }
  std::mt19937_64 random(9);
  for (std::int32_t i = 1; i <= 3000 || dropped < 500; ++i) {  // the engine's thread
    const auto n = static_cast<std::int32_t>(1 + random() % 20);
    std::pair<SegmentHandle, std::int32_t> one = {store.add(segment_of(*backend, n, i), 1), i};
    {
      const std::lock_guard lock(mutex);
      shared.push_back(one);
      one = shared[random() % shared.size()];
      if (shared.size() > 30) shared.erase(shared.begin());
    }
    if (const auto segment = store.read(one.first); segment && (segment->on_host() || !holds(*segment, one.second)))
      ++wrong;
  }
  done = true;
  for (std::thread& thread : others) thread.join();
  CHECK(wrong == 0);
  CHECK(store.stats().downloaded > 100);
  shared.clear();
  const SegmentStoreStats stats = store.stats();
  CHECK(stats.bytes + stats.host_bytes + stats.segments + stats.host_segments == 0);
}

TEST_CASE("a handle that is dropped while its segment moves", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  const KvLayout large{.shapes = std::vector<KvShape>(2, {8, 128, DType::f32}),
                       .raw_keys = true};  // 32 MB: copying takes a while
  const auto segment = [&] {
    KvCache cache(*backend, large, 2000);
    cache.commit(2000);
    return std::make_shared<Segment>(*backend, cache, 0, 2000, std::vector<TokenId>(2000, 1));
  };
  const auto bytes = static_cast<std::int64_t>(segment()->bytes());
  SegmentStore store(bytes, 2 * bytes);
  bool in_time = false;
  for (int attempt = 0; attempt < 20 && !in_time; ++attempt) {
    SegmentHandle handle = store.add(segment(), 1);
    const std::int64_t moved = store.stats().downloaded;
    std::thread other([&] {
      while (store.stats().host_segments == 0) std::this_thread::yield();
      handle.reset();
    });
    const SegmentHandle next = store.add(segment(), 1);
    other.join();
    in_time = store.stats().downloaded == moved;
    CHECK(store.stats().host_bytes == 0);
    CHECK(store.stats().bytes == bytes);
    CHECK(store.stats().evicted == 0);
  }
  CHECK(in_time);
}

TEST_CASE("where the backend reads host memory there is no host tier", "[reuse][store]") {
  auto backend = make_cpu_backend(1);
  auto model = make_tiny_model(*backend, {});
  StepEngine engine(std::move(backend), std::move(model),
                    {.segment_budget_bytes = 6000, .host_segment_budget_bytes = 1 << 30});
  std::vector<SegmentHandle> answers;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    GenerationRequest request;
    request.prompt = {text(20, seed)};
    request.reuse.record = true;
    request.output_readers = 1;
    request.forced = random_tokens(10, seed);
    answers.push_back(start(engine, std::move(request)).get().result.output);
  }
  CHECK(engine.segment(answers[0]) == nullptr);
  CHECK(engine.segment(answers[1]) != nullptr);
  CHECK(engine.stats().segments.evicted == 1);
  CHECK(engine.stats().segments.host_peak_bytes == 0);
}

}  // namespace
}  // namespace baton::test::host_tier_test
