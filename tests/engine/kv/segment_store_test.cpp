// SPDX-License-Identifier: Apache-2.0
// The life of segments: bytes, who goes first, what readers keep, and that nothing is left over.
#include "engine/kv/segment_store.h"
#include "engine/registry.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <random>
#include <thread>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "tests/support/process_memory.h"
#include "tests/support/reuse_cases.h"
#include "tests/support/tiny_model.h"

namespace segment_store_test {

using namespace baton;
using namespace baton::test;

namespace {

/// A segment of n tokens whose keys and values are all `fill`.
std::shared_ptr<const Segment> segment_of(Backend& backend, std::int32_t n, float fill,
                                          KvLayout layout = {.shapes = std::vector<KvShape>(2, {1, 8, DType::f32})}) {
  layout.raw_keys = true;
  KvCache cache(backend, layout, n);
  const std::int64_t cols = layout.shapes.front().width();
  std::vector<float> values(static_cast<std::size_t>(n * cols), fill);
  std::vector<std::int32_t> position, zero(static_cast<std::size_t>(n), 0);
  for (std::int32_t i = 0; i < n; ++i) position.push_back(i);
  const ConstTensorView all = view_of(values.data(), n, cols), none = view_of(values.data(), n, 0);
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    const KvSlab slab = cache.slab(layer);
    backend.kv().store_kv({&slab, 1}, layout.shape(layer), {zero, position, zero}, all, all, {none, none});
  }
  cache.commit(n);
  return std::make_shared<Segment>(backend, cache, 0, n,
                                   std::vector<TokenId>(static_cast<std::size_t>(n), static_cast<TokenId>(fill)));
}

bool holds(const Segment& segment, float fill) {
  for (std::int32_t layer = 0; layer < segment.layout().layers(); ++layer) {
    for (const ConstTensorView view : {segment.raw_keys(layer), segment.values(layer)}) {
      if (!std::all_of(view.f32(), view.f32() + view.rows * view.cols, [&](float x) { return x == fill; }))
        return false;
    }
  }
  return true;
}

constexpr std::int64_t kBytes =
    10 * (2 * 2 * 8 * 4 + 4);  // of segment_of with 10 tokens: 2 layers of keys and values, ids

std::shared_ptr<StepEngine> engine_of(LocalEngineOptions options = {}) {
  auto backend = make_cpu_backend(2);
  auto model = make_tiny_model(*backend, {.layers = 4, .width = 32, .heads = 2, .kv_heads = 1, .ffn_width = 32});
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed), nullptr, 0}; }

GenerationRequest request_of(std::vector<PromptPart> prompt, const std::string& method, std::size_t answer,
                             std::uint64_t seed, bool prefix = false) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.forced = random_tokens(answer, seed);
  request.output_readers = 2;
  request.reuse.method = find_method(method);
  request.reuse.range = {1, 2, 3};
  request.reuse.min_tokens = 1;
  request.reuse.prefix = prefix;
  request.reuse.record = true;
  return request;
}

std::future<GenerationResult> start(InferenceEngine& engine, GenerationRequest request, RequestId* id = nullptr) {
  auto promise = std::make_shared<std::promise<GenerationResult>>();
  request.callbacks.on_finished = [promise](GenerationResult result) { promise->set_value(std::move(result)); };
  const RequestId given = engine.submit(std::move(request));
  if (id != nullptr) *id = given;
  return promise->get_future();
}

GenerationResult finish(InferenceEngine& engine, GenerationRequest request) {
  GenerationResult result = start(engine, std::move(request)).get();
  REQUIRE(result.error.empty());
  return result;
}

PromptPart part_of(const GenerationResult& result) { return {"answer", result.tokens, result.output, 0}; }

/// The tokens that follow a prompt, greedily.
std::vector<TokenId> greedy(InferenceEngine& engine, std::vector<PromptPart> prompt, const std::string& method) {
  GenerationRequest request = request_of(std::move(prompt), method, 0, 0);
  request.reuse.record = false;
  request.max_tokens = 12;
  return finish(engine, std::move(request)).tokens;
}

}  // namespace

TEST_CASE("a store counts its segments to the byte", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(1 << 20);
  KvLayout rich{.shapes = std::vector<KvShape>(3, {2, 16, DType::bf16})};
  rich.hidden_width = 40;
  rich.hidden_layer = 1;
  rich.received = true;
  const std::int64_t rich_bytes = 7 * (3 * 2 * 2 * 16 * 2 + 40 * 2 + 4 + 4);
  SegmentHandle a = store.add(segment_of(*backend, 10, 1), 1);
  CHECK(store.stats().bytes == kBytes);
  SegmentHandle b = store.add(segment_of(*backend, 7, 2, rich), 1);
  CHECK(store.stats().bytes == kBytes + rich_bytes);
  CHECK(store.stats().segments == 2);
  CHECK(b->tokens == 7);
  const SegmentHandle copy = a;
  a.reset();
  CHECK(store.stats().segments == 2);  // the copy holds it
  b.reset();
  CHECK(store.stats().bytes == kBytes);
  CHECK(store.stats().peak_bytes == kBytes + rich_bytes);
  CHECK(store.stats().evicted == 0);
  CHECK(holds(*store.read(copy), 1));
  CHECK(store.read(nullptr) == nullptr);
}

TEST_CASE("what the fewest will read goes first, then what was not used for longest", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(4 * kBytes);
  const auto add = [&](float fill, std::int64_t readers) { return store.add(segment_of(*backend, 10, fill), readers); };
  const auto kept = [&](std::vector<SegmentHandle> handles) {
    std::string names;
    for (const SegmentHandle& handle : handles) names += store.peek(handle) ? '1' : '0';
    return names;
  };
  const SegmentHandle a = add(1, 2), b = add(2, 1), c = add(3, 1), d = add(4, 3);
  CHECK(store.stats().bytes == 4 * kBytes);
  const SegmentHandle e = add(5, 1);  // b and c have one reader each, b is older
  CHECK(kept({a, b, c, d, e}) == "10111");
  store.read(d);
  store.read(d);
  store.read(d);  // all its readers are done
  const SegmentHandle f = add(6, 1);
  CHECK(kept({a, b, c, d, e, f}) == "101011");
  store.peek(c);  // looking is no use
  store.read(a);  // one reader left, but used last
  const SegmentHandle g = add(7, 9);
  CHECK(kept({a, c, e, f, g}) == "10111");
  const SegmentHandle h = add(8, 9);
  CHECK(kept({a, e, f, g, h}) == "10111");
  const SegmentHandle large = store.add(segment_of(*backend, 40, 9), 0);  // exactly the budget: all others go
  CHECK(kept({a, f, g, h, large}) == "00001");
  CHECK(store.stats().bytes == 4 * kBytes);
  CHECK(store.stats().segments == 1);
  CHECK(store.stats().evicted == 8);
  CHECK(store.stats().peak_bytes == 4 * kBytes);
}

TEST_CASE("a hold of a hold counts once, and the holds before it no longer than they live", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(2 * kBytes);
  SegmentHandle often = store.add(segment_of(*backend, 10, 1), 0);
  const SegmentHandle twice = store.add(segment_of(*backend, 10, 2), 0);
  SegmentHandle held = store.hold(often);
  for (int turn = 0; turn < 1000; ++turn) held = store.hold(held);
  const std::vector<SegmentHandle> both = {store.hold(twice), store.hold(twice)};
  const SegmentHandle other = store.add(segment_of(*backend, 10, 3), 9);
  CHECK(store.peek(often) == nullptr);
  CHECK(store.peek(held) == nullptr);
  CHECK(store.peek(twice) != nullptr);

  SegmentHandle first = store.add(segment_of(*backend, 10, 4), 20);
  held = store.hold(store.hold(first));
  often.reset();
  first.reset();
  CHECK(holds(*store.peek(held), 4));  // it lives as long as its last hold
  held.reset();
  CHECK(store.stats().segments == 1);
}

TEST_CASE("a reader keeps what the store takes back, a segment above the budget is not taken in", "[reuse][store]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(kBytes);
  const SegmentHandle first = store.add(segment_of(*backend, 10, 1), 5);
  const std::shared_ptr<const Segment> reading = store.read(first);
  const SegmentHandle second = store.add(segment_of(*backend, 10, 2), 0);
  CHECK(store.read(first) == nullptr);
  CHECK(store.stats().bytes == kBytes);
  CHECK(holds(*reading, 1));
  CHECK(first->tokens == 10);
  CHECK(store.add(segment_of(*backend, 11, 3), 9) == nullptr);
  CHECK(holds(*store.read(second), 2));
  store.close();
  CHECK(store.read(second) == nullptr);
  CHECK(store.add(segment_of(*backend, 1, 4), 1) == nullptr);
  CHECK(store.stats().bytes == 0);
  CHECK(store.stats().segments == 0);
}

TEST_CASE("a store from many threads: what is read is whole, and nothing is left over", "[reuse][store][stress]") {
  std::vector<std::unique_ptr<Backend>> backends;
  for (int t = 0; t < 6; ++t) backends.push_back(make_cpu_backend(1));
  auto store = std::make_unique<SegmentStore>(12 * kBytes);
  std::mutex mutex;
  std::deque<std::pair<SegmentHandle, float>> shared;
  std::atomic<int> wrong = 0, read = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      for (int i = 0; i < 400; ++i) {
        const float fill = static_cast<float>(t * 1000 + i);
        const SegmentHandle mine = store->add(
            segment_of(*backends[static_cast<std::size_t>(t)], 1 + static_cast<std::int32_t>(random() % 20), fill),
            static_cast<std::int64_t>(random() % 3));
        std::pair<SegmentHandle, float> other;
        {
          const std::lock_guard lock(mutex);
          shared.emplace_back(mine, fill);
          other = shared[random() % shared.size()];
          if (shared.size() > 20) shared.pop_front();
        }
        if (const auto segment = store->read(other.first)) {
          ++read;
          if (!holds(*segment, other.second)) ++wrong;
        }
        if (store->stats().bytes > 12 * kBytes) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(read > 100);
  shared.clear();
  CHECK(store->stats().bytes == 0);
  CHECK(store->stats().segments == 0);
  const SegmentHandle last = store->add(segment_of(*backends[0], 5, 1), 1);
  store->close();
  store.reset();  // the handle outlives it
}

TEST_CASE("an evicted segment is computed again, and the consumer says so", "[reuse][store]") {
  const auto engine = engine_of();
  const GenerationResult sample = finish(*engine, request_of({text(20, 1)}, "full", 40, 2));
  const std::int64_t bytes = engine->stats().segments.bytes;
  // 4 layers of keys and values in bf16, hidden states, attention received, entropy, ids.
  CHECK(bytes == 40 * (4 * 2 * 16 * 2 + 32 * 2 + 4 + 4 + 4));

  const auto small = engine_of({.segment_budget_bytes = bytes + bytes / 2});
  const GenerationResult first = finish(*small, request_of({text(20, 1)}, "full", 40, 2));
  const GenerationResult second = finish(*small, request_of({text(20, 3)}, "full", 40, 4));
  REQUIRE(first.output);
  REQUIRE(second.output);
  CHECK(small->stats().segments.evicted == 1);
  CHECK(small->stats().segments.bytes == bytes);
  for (const std::string method : {"rectify", "direct"}) {
    const std::vector<PromptPart> prompt = {text(9, 5), part_of(first), text(4, 6)};
    GenerationRequest request = request_of(prompt, method, 0, 0);
    request.reuse.record = false;
    request.max_tokens = 12;
    const GenerationResult result = finish(*small, std::move(request));
    CHECK_THAT(result.uses[1].reason, Catch::Contains("evicted"));
    CHECK(result.uses[1].method->name == "full");
    CHECK(result.uses[1].kv_reused == 0);
    CHECK(result.kv_computed == result.kv_entries);
    CHECK(result.tokens == greedy(*small, prompt, "full"));
    CHECK(greedy(*small, {text(9, 5), part_of(second), text(4, 6)}, method) ==
          greedy(*engine, {text(9, 5), part_of(finish(*engine, request_of({text(20, 3)}, "full", 40, 4))), text(4, 6)},
                 method));
  }

  const auto tiny = engine_of({.segment_budget_bytes = bytes - 1});
  const GenerationResult none = finish(*tiny, request_of({text(20, 1)}, "full", 40, 2));
  CHECK(none.output == nullptr);
  CHECK(none.tokens == sample.tokens);
  CHECK(tiny->stats().segments.segments == 0);
  CHECK(greedy(*tiny, {text(9, 5), part_of(none), text(4, 6)}, "rectify") ==
        greedy(*tiny, {text(9, 5), part_of(none), text(4, 6)}, "full"));
}

TEST_CASE("a producer that is cancelled or fails makes no segment", "[reuse][store]") {
  const auto engine = engine_of();
  GenerationRequest request = request_of({text(20, 1)}, "prefix", 400, 2, true);
  std::promise<RequestId> id;
  std::shared_future<RequestId> known = id.get_future().share();
  request.callbacks.on_token = [&, count = std::make_shared<int>(0)](TokenId, const std::string&) {
    if (++*count == 10) engine->cancel(known.get());
  };
  RequestId given = 0;
  auto future = start(*engine, std::move(request), &given);
  id.set_value(given);
  const GenerationResult cancelled = future.get();
  CHECK(cancelled.reason == FinishReason::cancelled);
  CHECK(cancelled.output == nullptr);

  GenerationRequest failing = request_of({text(20, 1)}, "prefix", 30, 2, true);
  failing.callbacks.on_token = [](TokenId, const std::string&) { throw std::runtime_error("host trouble"); };
  const GenerationResult failed = start(*engine, std::move(failing)).get();
  CHECK(failed.reason == FinishReason::error);
  CHECK(failed.output == nullptr);
  CHECK(engine->stats().segments.bytes == 0);
  CHECK(engine->stats().kv_bytes == 0);
  // Its consumer has nothing but the tokens.
  const std::vector<PromptPart> prompt = {text(5, 3), part_of(cancelled), text(5, 4)};
  CHECK(greedy(*engine, prompt, "rectify") == greedy(*engine, prompt, "full"));
}

TEST_CASE("two consumers read one segment at different places at once", "[reuse][store]") {
  for (const std::string& method : plain_methods()) {
    const auto engine = engine_of({.max_step_rows = 16});
    const GenerationResult producer = finish(*engine, request_of({text(20, 1)}, "full", 60, 2));
    const std::vector<PromptPart> near = {text(3, 3), part_of(producer), text(4, 4)};
    const std::vector<PromptPart> far = {text(70, 5), part_of(producer), text(9, 6), part_of(producer), text(2, 7)};
    const auto near_alone = greedy(*engine, near, method), far_alone = greedy(*engine, far, method);
    std::vector<std::future<GenerationResult>> both;
    for (const auto& prompt : {near, far, near, far}) {
      GenerationRequest request = request_of(prompt, method, 0, 0);
      request.reuse.record = false;
      request.max_tokens = 12;
      both.push_back(start(*engine, std::move(request)));
    }
    INFO(method);
    for (std::size_t i = 0; i < both.size(); ++i) CHECK(both[i].get().tokens == (i % 2 == 0 ? near_alone : far_alone));
  }
}

TEST_CASE("a chain of 8 hops counts them", "[reuse][store]") {
  for (const std::string method : {"direct", "rectify"}) {
    const auto engine = engine_of();
    GenerationResult last = finish(*engine, request_of({text(15, 1)}, "full", 40, 2));
    CHECK(last.hops == 0);
    CHECK(last.output->hops == 0);
    for (int hop = 1; hop <= 8; ++hop) {
      const auto seed = static_cast<std::uint64_t>(hop);
      GenerationRequest request =
          request_of({text(10, 10 + seed), part_of(last), text(7, 30 + seed)}, method, 40, 50 + seed);
      request.prompt[2].readers = 1;
      const GenerationResult next = finish(*engine, std::move(request));
      INFO(method << ", hop " << hop);
      CHECK(next.hops == hop);
      CHECK(next.uses[1].hops == hop - 1);
      REQUIRE(next.output);
      CHECK(next.output->hops == hop);
      REQUIRE(next.segments.size() == 3);
      REQUIRE(next.segments[2]);
      CHECK(next.segments[2]->hops == hop);  // text behind it is as inexact
      CHECK(next.segments[1] == nullptr);
      last = next;
    }
    CHECK(engine->stats().segments.segments == 1 + 1);  // of the last agent only
  }
}

TEST_CASE("handles may outlive their engine, and tell the next one nothing", "[reuse][store]") {
  GenerationResult result;
  {
    const auto engine = engine_of();
    result = finish(*engine, request_of({text(20, 1)}, "full", 40, 2));
    CHECK(engine->stats().segments.segments == 1);
  }
  REQUIRE(result.output);
  CHECK(result.output->tokens == 40);
  const auto other = engine_of();
  GenerationRequest request = request_of({text(5, 3), part_of(result), text(5, 4)}, "rectify", 3, 5);
  const GenerationResult again = finish(*other, std::move(request));
  CHECK_THAT(again.uses[1].reason, Catch::Contains("evicted"));
  CHECK(again.kv_computed == again.kv_entries);

  // Dropped by other threads while the engine closes.
  for (int round = 0; round < 20; ++round) {
    auto engine = engine_of();
    std::vector<SegmentHandle> handles;
    for (std::uint64_t i = 0; i < 4; ++i)
      handles.push_back(finish(*engine, request_of({text(5, i)}, "full", 20, i)).output);
    std::atomic<bool> go = false;
    std::thread dropping([&] {
      while (!go) {
      }
      handles.clear();
    });
    go = true;
    engine.reset();
    dropping.join();
  }
}

TEST_CASE("memory returns to where it was after 200 runs", "[reuse][store][stress]") {
  const auto engine = engine_of({.segment_budget_bytes = 1 << 20});
  struct After {
    SegmentStoreStats store;
    ProcessMemory memory;
  };
  const auto run = [&](std::uint64_t seed) {
    // Texts of the run alone, without prefixes: nothing stays.
    std::vector<PromptPart> chain = {text(20, seed)};
    for (std::uint64_t agent = 0; agent < 3; ++agent) {
      GenerationRequest request = request_of(chain,
                                             agent == 0   ? "full"
                                             : agent == 1 ? "rectify"
                                                          : "direct",
                                             20, 1000 * seed + agent);
      request.prompt[0].readers = 2;
      chain.push_back(part_of(finish(*engine, std::move(request))));
      chain.push_back(text(5, seed + agent));
    }
    // The same texts in every run, as prefixes: they stay once.
    const GenerationResult first = finish(*engine, request_of({text(40, 1)}, "prefix", 20, 2, true));
    finish(*engine, request_of({text(40, 1), part_of(first), text(9, 3)}, "rectify", 10, 4, true));
  };
  std::map<int, After> after;
  for (int i = 1; i <= 200; ++i) {
    run(static_cast<std::uint64_t>(i));
    if (i == 20 || i == 200) after[i] = {engine->stats().segments, ProcessMemory::now()};
  }
  CHECK(after[20].store.segments > 0);
  CHECK(after[200].store.bytes == after[20].store.bytes);
  CHECK(after[200].store.segments == after[20].store.segments);
  CHECK(after[200].store.peak_bytes == after[20].store.peak_bytes);
  CHECK(after[200].store.evicted == 0);
  CHECK(engine->stats().kv_bytes == 0);
  INFO("in use " << after[20].memory.in_use << " bytes, then " << after[200].memory.in_use);
  INFO("resident " << after[20].memory.resident << " bytes, then " << after[200].memory.resident);
  if (!kFreedIsKept) {
    CHECK(after[200].memory.in_use - after[20].memory.in_use < kThreadCache);
    CHECK(after[200].memory.resident - after[20].memory.resident < 8 << 20);
  }
}

TEST_CASE("prefixes stay within their number and their budget, and are exact", "[reuse][store]") {
  const auto engine = engine_of(), plain = engine_of(),
             narrow = engine_of({.segment_budget_bytes = 3 * 60 * (4 * 2 * 16 * 2 + 4)});
  for (std::uint64_t i = 0; i < 540; ++i) {
    GenerationRequest request = request_of({text(50, i)}, "prefix", 10, i, true);
    request.reuse.record = false;
    finish(*narrow, request);
    finish(*engine, std::move(request));
  }
  CHECK(engine->stats().segments.segments == 512);
  CHECK(narrow->stats().segments.segments == 3);
  CHECK(narrow->stats().segments.evicted == 537);
  for (const std::uint64_t seed : {0u, 40u, 539u}) {
    const std::vector<PromptPart> prompt = {text(50, seed), text(20, 99)};
    const auto expected = greedy(*plain, prompt, "full");
    for (const auto& cached : {engine, narrow}) {
      GenerationRequest request = request_of(prompt, "prefix", 0, 0, true);
      request.max_tokens = 12;
      CHECK(finish(*cached, std::move(request)).tokens == expected);
    }
  }
}

TEST_CASE("the prefix that was not used for longest goes", "[reuse][store]") {
  const auto engine = engine_of();
  const auto computed = [&](std::uint64_t seed) {
    GenerationRequest request = request_of({text(40, seed), text(3, 1000 + seed)}, "prefix", 1, 0, true);
    request.reuse.record = false;
    return finish(*engine, std::move(request)).kv_computed / 4;
  };
  for (std::uint64_t seed = 0; seed < 512; ++seed) CHECK(computed(seed) > 40);  // texts begin alike by chance at most
  CHECK(computed(0) == 1);
  CHECK(computed(512) > 40);
  CHECK(computed(0) == 1);
  std::uint64_t first = 1;  // the oldest one from which no other branches off had to go for the 513th
  while (first < 20 && computed(first) == 1) ++first;
  CHECK(first < 20);
  CHECK(computed(511) == 1);
}

TEST_CASE("reuse from many threads on a small budget gives what it gives alone", "[reuse][store][stress]") {
  // The segment of every producer evicts others; a consumer either has it or computes it: both are known.
  const auto alone = engine_of();
  const auto producer = [](std::uint64_t seed) { return request_of({text(20, seed)}, "full", 30, seed + 100); };
  std::vector<std::vector<TokenId>> reused, full;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<PromptPart> prompt = {text(9, 50), part_of(finish(*alone, producer(seed))), text(6, 51)};
    reused.push_back(greedy(*alone, prompt, "rectify"));
    full.push_back(greedy(*alone, prompt, "full"));
  }
  const auto engine = engine_of(
      {.segment_budget_bytes = 2 * 30 * (4 * 2 * 16 * 2 + 32 * 2 + 8), .max_step_rows = 20, .max_sequences = 5});
  std::atomic<int> wrong = 0, evicted = 0, kept = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        const GenerationResult made = start(*engine, producer(t)).get();
        GenerationRequest request = request_of({text(9, 50), part_of(made), text(6, 51)}, "rectify", 0, 0);
        request.reuse.record = false;
        request.max_tokens = 12;
        const GenerationResult result = start(*engine, std::move(request)).get();
        const bool was_evicted = !result.uses[1].reason.empty();
        ++(was_evicted ? evicted : kept);
        if (result.tokens != (was_evicted ? full : reused)[t]) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  INFO(evicted << " evicted, " << kept << " kept");
  CHECK(wrong == 0);
  CHECK(kept > 0);
  CHECK(engine->stats().segments.bytes == 0);
  CHECK(engine->stats().kv_bytes == 0);
}

}  // namespace segment_store_test
