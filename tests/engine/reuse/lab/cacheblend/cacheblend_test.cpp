// SPDX-License-Identifier: Apache-2.0
// Method cacheblend: which tokens it chooses, and what is left of that through the engine.
#include "engine/reuse/lab/cacheblend/cacheblend.h"

#include "tests/support/reuse_prompts.h"
#include "tests/support/schedule_oracle.h"

namespace cacheblend_test {

using namespace baton;
using namespace baton::test;
using namespace baton::test::reuse_prompts;

namespace {

/// The tokens that a method's own schedule chooses in a prompt of random KV, and the oracle's deviations of all reused
/// tokens, in the order of the schedule.
struct Choice {
  std::vector<bool> chosen;
  Vec deviation;
  std::vector<std::size_t> detection;  // of each
};

Choice choice_of(const ReuseOptions& options, const std::vector<PlacedSegment>& segments, std::int32_t length,
                 std::uint64_t seed) {
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {.layers = 5, .dtype = DType::f32, .kv_dtype = DType::f32});
  Oracle oracle(*backend, *model);
  Random random(seed);
  Caches caches(*backend, *model, oracle, {length}, 1, random);
  PromptSchedule schedule = make_schedule(options, {length, 0, segments, 5});
  std::vector<std::vector<bool>> choices(schedule.detections.size());
  StepRows rows;
  rows.add_cache(&caches.engine[0]);
  rows.detections = schedule.detections;
  for (std::size_t d = 0; d < choices.size(); ++d) {
    rows.detections[d].choose = [&, d](std::span<const float> deviation, std::span<const float> attention) {
      return choices[d] = schedule.detections[d].choose(deviation, attention);
    };
  }
  Choice choice;
  for (const ScheduledRow& row : schedule.rows) {
    rows.add_row(0, row.position, static_cast<TokenId>(random() % 50));
    rows.path.push_back(row.path);
    if (row.path.detection >= 0) choice.detection.push_back(static_cast<std::size_t>(row.path.detection));
  }
  StepRows again = rows;
  Forward(*backend, *model).run(rows);
  oracle.run(again, caches.dense, choices);
  std::vector<std::size_t> next(choices.size(), 0);
  for (const std::size_t d : choice.detection) {
    choice.chosen.push_back(choices[d][next[d]]);
    choice.deviation.push_back(oracle.deviations[d][next[d]++]);
  }
  return choice;
}

/// The largest `count` of the values: their flags, by a full sort.
std::vector<bool> top(const Vec& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  std::vector<bool> flags(values.size(), false);
  for (std::size_t i = 0; i < count; ++i) flags[order[i]] = true;
  return flags;
}

}  // namespace

TEST_CASE("cacheblend takes the largest squared distances of values over all texts of a prompt", "[reuse][schedule]") {
  const std::vector<PlacedSegment> segments = {{4, nullptr, {}, 20}, {31, nullptr, {}, 33}};
  bool crossed = false;  // a choice by text would have been another one
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    ReuseOptions blend;
    blend.method = &cacheblend_method();
    own<CacheblendOptions>(blend).share = 0.3;
    const Choice choice = choice_of(blend, segments, 70, seed);
    REQUIRE(choice.chosen.size() == 53);
    CHECK(choice.chosen == top(choice.deviation, 15));  // int(0.3 * 53)
    const auto first = std::count(choice.chosen.begin(), choice.chosen.begin() + 20, true);
    crossed = crossed || first != 6;

    own<CacheblendOptions>(blend).reuse =
        0.6;  // of 5 layers 2 may be computed: 1 for every token, and 3 more for each third one
    CHECK(choice_of(blend, segments, 70, seed).chosen == top(choice.deviation, 17));

    own<CacheblendOptions>(blend).reuse = 0.0;
    own<CacheblendOptions>(blend).score = CacheblendOptions::Score::cosine;
    const Choice cosine = choice_of(blend, segments, 70, seed);
    CHECK(cosine.detection.front() == 0);
    CHECK(cosine.detection.back() == 1);
    const auto part = [](const auto& all, std::ptrdiff_t begin, std::ptrdiff_t end) {
      return std::vector(all.begin() + begin, all.begin() + end);
    };
    CHECK(part(cosine.chosen, 0, 20) == top(part(cosine.deviation, 0, 20), 6));
    CHECK(part(cosine.chosen, 20, 53) == top(part(cosine.deviation, 20, 53), 10));  // rounded up
  }
  CHECK(crossed);
}

TEST_CASE("cacheblend: all rows run through the first layer, and the chosen ones go on", "[reuse]") {
  ReuseOptions blend = method("cacheblend");
  own<CacheblendOptions>(blend).share = 0.26;
  check_computed(blend, {30 * kLayers + 40 + 10 * (kLayers - 2), 40 - 10, 40 * (kLayers - 1)});  // int(0.26 * 40)
}

TEST_CASE("cacheblend: options out of range are errors, and what is asked is left", "[reuse]") {
  const auto engine = engine_of();
  ReuseOptions blend = method("cacheblend");
  own<CacheblendOptions>(blend).reuse = 0.9;
  check_refused(*engine, blend, "cannot reuse 0.900 of the entries; expected at most 0.833");
  own<CacheblendOptions>(blend).reuse = 1.5;
  check_refused(*engine, blend, "reuse is 1.5; expected a number from 0 to 1");
  own<CacheblendOptions>(blend).reuse = 0.0;
  own<CacheblendOptions>(blend).share = -0.1;
  check_refused(*engine, blend, "cacheblend_share is -0.1");
  blend = method("cacheblend");
  own<CacheblendOptions>(blend).reuse = 0.7;
  check_left(blend);
}

}  // namespace cacheblend_test
