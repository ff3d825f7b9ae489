// SPDX-License-Identifier: Apache-2.0
// Segments that leave the device's memory and return: the same bits, and the same answers.
#include <cstring>
#include <random>
#include <thread>

#include "engine/kv/segment_store.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/anchors/anchors.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/asking.h"

namespace baton::test::host_tier_test {
namespace {

std::vector<std::byte> bytes_of(Backend& backend, const Segment& segment) {
  std::vector<std::byte> all;
  const auto add = [&](ConstTensorView view) {
    const std::size_t begin = all.size(), bytes = static_cast<std::size_t>(view.rows * view.cols) * size_of(view.dtype);
    all.resize(begin + bytes);
    const std::span<std::byte> out = std::span(all).subspan(begin);
    if (segment.on_host()) {
      backend.wait();
      std::memcpy(out.data(), view.data, bytes);
    } else {
      backend.copy_to_host(out, view.data);
    }
  };
  for (std::int32_t layer = 0; layer < segment.layout().layers(); ++layer) {
    add(segment.raw_keys(layer));
    add(segment.values(layer));
  }
  if (segment.layout().hidden_width > 0) add(segment.hidden());
  return all;
}

bool same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_CASE("a segment goes to host memory and returns bit for bit", "[segments]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto backend = make_backend_under_test();
    if (backend == nullptr) return;
    KvLayout layout{.shapes = std::vector<KvShape>(3, {2, 24, dtype}), .raw_keys = true, .received = true};
    layout.hidden_width = 40;
    layout.hidden_layer = 1;
    std::mt19937_64 random(3);
    const auto segment_of = [&](std::int32_t n) {
      KvCache cache(*backend, layout, n + 5);
      std::vector<std::byte> noise(cache.bytes());
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
      backend->copy_to_device(cache.slab(0).keys, noise);
      cache.commit(n + 5);
      auto segment = std::make_shared<Segment>(*backend, cache, 5, n, random_tokens(static_cast<std::size_t>(n), 4));
      for (std::int32_t i = 0; i < n; ++i) segment->entropy.push_back(static_cast<float>(i) / 7.0f);
      segment->hops = 2;
      segment->origin = "inspector#2";
      return segment;
    };
    std::shared_ptr<const Segment> made = segment_of(37);
    const Segment& origin = *made;
    const std::vector<std::byte> bits = bytes_of(*backend, origin);
    const std::vector<float> values = values_on_host(origin, 2), entropy = origin.entropy,
                             received(origin.received().begin(), origin.received().end());
    const std::vector<TokenId> tokens = origin.tokens();
    const auto bytes = static_cast<std::int64_t>(origin.bytes());
    const auto check = [&](const Segment& segment, bool on_host) {
      REQUIRE(segment.on_host() == on_host);
      CHECK(bytes_of(*backend, segment) == bits);
      CHECK(same(values_on_host(segment, 2), values));
      CHECK(same(segment.received(), received));
      CHECK(same(segment.entropy, entropy));
      CHECK(segment.tokens() == tokens);
      CHECK(static_cast<std::int64_t>(segment.bytes()) == bytes);
      CHECK((segment.length() == 37 && segment.layout() == layout));
      CHECK((segment.hops == 2 && segment.position == 5 && segment.origin == "inspector#2"));
    };
    SegmentStore store(bytes, 4 * bytes);
    const SegmentHandle handle = store.add(std::move(made), 3);
    const SegmentHandle other = store.add(segment_of(36), 9);
    for (int i = 0; i < 3; ++i) {
      check(*store.peek(handle), true);
      check(*store.read(handle), false);
      REQUIRE(store.read(other) != nullptr);
    }
    store.read(handle)->upload(1);  // and is downloaded while it is being uploaded
    REQUIRE(store.read(other) != nullptr);
    check(*store.peek(handle), true);
    CHECK(store.stats().downloaded == 9);
    CHECK(store.stats().uploaded == 8);
    store.close();
  }
}

std::shared_ptr<StepEngine> engine_of(LocalEngineOptions options = {}) {
  auto backend = make_backend_under_test();
  if (backend == nullptr) return nullptr;
  auto model = make_tiny_model(*backend, {.layers = 4});
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

ReuseOptions reuse_of(const std::string& method) {
  ReuseOptions reuse;
  reuse.method = find_method(method);
  reuse.range = {1, 2, 3};
  reuse.min_tokens = 1;
  reuse.prefix = method == "prefix";
  return reuse;
}

const std::vector<std::string> kMethods = {"direct", "rectify", "cacheblend", "epic"};

/// Each of three answers is read in turn, by each method.
std::vector<Run> conversation(InferenceEngine& engine) {
  const std::vector<PromptPart> answers = {recorded_answer(engine, 1), recorded_answer(engine, 2),
                                           recorded_answer(engine, 3)};
  std::vector<Run> runs;
  for (const std::string& method : kMethods) {
    for (const PromptPart& part : answers)
      runs.push_back(ask(engine, {text(9, 7), part, text(6, 8)}, reuse_of(method)));
  }
  return runs;
}

TEST_CASE("an engine with room for one segment answers from its host tier as without pressure", "[segments]") {
  std::int64_t bytes = 0;
  std::vector<Run> expected, in_full;
  if (auto plain = engine_of()) {
    recorded_answer(*plain, 1);
    bytes = plain->stats().segments.peak_bytes;
    expected = conversation(*plain);
    for (std::uint64_t seed = 1; seed <= 3; ++seed)
      in_full.push_back(ask(*plain, {text(9, 7), {"answer", random_tokens(30, seed + 50), nullptr, 0}, text(6, 8)},
                            reuse_of("full")));
    REQUIRE(plain->stats().segments.downloaded == 0);
  } else {
    return;
  }
  {
    const auto engine = engine_of({.segment_budget_bytes = bytes + bytes / 2});
    const std::vector<Run> actual = conversation(*engine);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO("run " << i);
      CHECK(actual[i].result.uses[1].from_segment);
      CHECK(actual[i].result.kv_computed == expected[i].result.kv_computed);
      CHECK(same(actual[i], expected[i]));
    }
    const SegmentStoreStats stats = engine->stats().segments;
    CHECK(stats.uploaded >= 11);
    CHECK(stats.evicted == 0);
    CHECK(stats.peak_bytes == bytes);
    CHECK(stats.host_peak_bytes == 2 * bytes);
  }
  {
    const auto engine = engine_of({.segment_budget_bytes = bytes + bytes / 2, .host_segment_budget_bytes = bytes - 1});
    const std::vector<Run> actual = conversation(*engine);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      INFO("run " << i);
      const bool kept = i % 3 == 2;
      CHECK(actual[i].result.uses[1].from_segment == kept);
      CHECK(same(actual[i], kept ? expected[i] : in_full[i % 3]));
      if (!kept) CHECK_THAT(actual[i].result.uses[1].reason, Catch::Contains("evicted"));
    }
    CHECK(engine->stats().segments.evicted == 2);
    CHECK(engine->stats().segments.host_peak_bytes == 0);
  }
}

/// What the segment of one answer takes; 0: there is no device.
std::int64_t bytes_of_an_answer() {
  const auto plain = engine_of();
  if (plain == nullptr) return 0;
  recorded_answer(*plain, 1);
  return plain->stats().segments.peak_bytes;
}

TEST_CASE("an engine that is asked to gives the device's memory back, and reads its segments from there",
          "[segments]") {
  const auto engine = engine_of();
  if (engine == nullptr) return;  // no device
  const PromptPart first = recorded_answer(*engine, 1), second = recorded_answer(*engine, 2);
  const std::vector<PromptPart> prompt = {text(9, 7), first, text(6, 8), second, text(5, 9)};
  for (const std::string& method : kMethods) {
    const Run expected = ask(*engine, prompt, reuse_of(method));
    engine->park();
    CHECK(engine->stats().segments.bytes == 0);
    CHECK(engine->stats().segments.host_segments == 2);
    CHECK(same(ask(*engine, prompt, reuse_of(method)), expected));
    CHECK(engine->stats().segments.host_segments == 0);
  }
}

TEST_CASE("a prompt with more segments than the device has room for computes the rest", "[segments]") {
  const std::int64_t bytes = bytes_of_an_answer();
  if (bytes == 0) return;  // no device
  const auto engine = engine_of({.segment_budget_bytes = bytes + bytes / 2});
  const PromptPart first = recorded_answer(*engine, 1), second = recorded_answer(*engine, 2);
  for (int i = 0; i < 3; ++i) {
    const Run both = ask(*engine, {text(9, 7), first, text(6, 8), second, text(6, 9)}, reuse_of("direct"));
    CHECK(both.result.uses[1].from_segment);
    CHECK_FALSE(both.result.uses[3].from_segment);
    CHECK_THAT(both.result.uses[3].reason, Catch::Contains("no device memory"));
  }
  CHECK(engine->stats().segments.peak_bytes == bytes);
}

TEST_CASE("a reader that decodes has let go of its segment", "[segments]") {
  const std::int64_t bytes = bytes_of_an_answer();
  if (bytes == 0) return;  // no device
  const auto engine = engine_of({.segment_budget_bytes = bytes + bytes / 2});
  const PromptPart first = recorded_answer(*engine, 1), second = recorded_answer(*engine, 2);
  const auto request_of = [](const PromptPart& part, std::size_t length) {
    GenerationRequest request;
    request.prompt = {text(9, 7), part, text(6, 8)};
    request.reuse = reuse_of("rectify");
    request.forced = random_tokens(length, 6);
    return request;
  };
  std::future<Run> other;
  GenerationRequest reading = request_of(first, 40);
  reading.callbacks.on_token = [&](TokenId, const std::string&) {
    if (!other.valid()) other = start(*engine, request_of(second, 2));  // begins while this one goes on
  };
  const Run run = start(*engine, std::move(reading)).get();
  CHECK(run.result.uses[1].from_segment);
  CHECK(other.get().result.uses[1].from_segment);
  CHECK(engine->stats().segments.evicted == 0);
  CHECK(engine->stats().segments.peak_bytes == bytes);
}

TEST_CASE("readers that begin together wait for one segment, and one may go meanwhile", "[segments]") {
  const std::int64_t bytes = bytes_of_an_answer();
  if (bytes == 0) return;  // no device
  const auto engine = engine_of({.segment_budget_bytes = bytes + bytes / 2});
  const PromptPart first = recorded_answer(*engine, 1), second = recorded_answer(*engine, 2);
  const auto request_of = [](const PromptPart& part, const std::string& method, std::uint64_t seed) {
    GenerationRequest request;
    request.prompt = {text(9, 7), part, text(6, seed)};
    request.reuse = reuse_of(method);
    request.forced = {1, 2};
    return request;
  };
  // Each alone; both answers then lie in host memory in turn. Which rows share a step depends on time, and on a device
  // the bits depend on that: what another text's KV would change is far more.
  std::vector<Run> alone;
  for (const std::string& method : kMethods) {
    alone.push_back(ask(*engine, request_of(first, method, 8).prompt, reuse_of(method)));
    alone.push_back(ask(*engine, request_of(first, method, 9).prompt, reuse_of(method)));
  }
  const double other_text =
      distance(ask(*engine, request_of(second, "direct", 8).prompt, reuse_of("direct")), alone[0]);
  for (std::size_t m = 0; m < kMethods.size(); ++m) {
    for (const bool cancelled : {false, true}) {
      ask(*engine, {text(9, 7), second, text(6, 8)}, reuse_of("direct"));
      REQUIRE(engine->segment(first.segment)->on_host());
      std::vector<std::future<Run>> together;
      GenerationRequest opening = request_of(second, "full", 3);
      opening.callbacks.on_token = [&](TokenId, const std::string&) {  // on the engine's thread: both wait for its turn
        if (!together.empty()) return;
        for (const std::uint64_t seed : {8, 9})
          together.push_back(start(*engine, request_of(first, kMethods[m], seed)));
        if (!cancelled) return;
        GenerationRequest third = request_of(first, kMethods[m], 10);
        third.callbacks.on_finished = [](GenerationResult) {};
        engine->cancel(engine->submit(std::move(third)));
      };
      start(*engine, std::move(opening)).get();
      for (std::size_t i = 0; i < 2; ++i) {
        const Run run = together[i].get();
        INFO(kMethods[m] << " " << i);
        CHECK(run.result.uses[1].from_segment);
        CHECK(distance(run, alone[2 * m + i]) < other_text / 20);
      }
    }
  }
}

TEST_CASE("segments from the host tier are corrected by anchors as without pressure", "[segments]") {
  const auto talk = [](LocalEngine& engine) {
    std::vector<PromptPart> answers;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) answers.push_back(recorded_answer(engine, seed));
    ReuseOptions reuse = reuse_of("anchors");
    reuse.record = true;  // the first prompt is learned
    own<AnchorOptions>(reuse).gate = AnchorOptions::Gate::none;
    own<AnchorOptions>(reuse).check = 0;
    std::vector<Run> runs;
    for (std::size_t i = 0; i < 9; ++i) {
      runs.push_back(ask(engine, {text(9, 7), answers[i % 4], text(6, 8), answers[(i + 1) % 4], text(5, 9)}, reuse));
      while (anchor_store_of(*engine.method_state(anchors_method())).stats().anchors < 2)
        std::this_thread::yield();  // anchors are made on another thread
    }
    return runs;
  };
  std::int64_t anchors = 0;
  std::vector<Run> expected;
  if (const auto plain = engine_of()) {
    expected = talk(*plain);
    anchors = plain->stats().segments.charged_bytes;
  } else {
    return;
  }
  const auto engine = engine_of({.segment_budget_bytes = 5 * bytes_of_an_answer() / 2 + anchors});
  const std::vector<Run> actual = talk(*engine);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("run " << i << ": " << actual[i].result.uses[1].reason);
    CHECK(same(actual[i], expected[i]));
    CHECK(actual[i].result.uses[1].from_segment == (i > 0));
  }
  CHECK(engine->stats().segments.uploaded >= 6);
  CHECK(engine->stats().segments.evicted == 0);
}

TEST_CASE("prefixes return from the host tier", "[segments]") {
  const auto talk = [](InferenceEngine& engine) {
    std::vector<Run> runs;
    for (std::uint64_t i = 0; i < 9; ++i) {
      const PromptPart role = text(40, 20 + i % 3);
      runs.push_back(ask(engine, {role, text(20 + i, 30 + i / 3)}, reuse_of("prefix")));
    }
    return runs;
  };
  std::int64_t bytes = 0;
  std::vector<Run> expected;
  if (auto plain = engine_of()) {
    expected = talk(*plain);
    bytes = plain->stats().segments.peak_bytes;
  } else {
    return;
  }
  const auto engine = engine_of({.segment_budget_bytes = bytes / 3});
  const std::vector<Run> actual = talk(*engine);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("run " << i);
    CHECK(actual[i].result.kv_computed == expected[i].result.kv_computed);
    CHECK(same(actual[i], expected[i]));
  }
  CHECK(expected.back().result.uses[0].method->name == "prefix");
  CHECK(engine->stats().segments.uploaded > 0);
  CHECK(engine->stats().segments.evicted == 0);
}

}  // namespace
}  // namespace baton::test::host_tier_test
