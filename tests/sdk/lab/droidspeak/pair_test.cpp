// SPDX-License-Identifier: Apache-2.0
// What droidspeak recomputes of another model's KV: measured between two engines, and kept in a file.
#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "sdk/lab/effect_profiler.h"
#include "tests/support/tiny_model.h"

namespace pair_test {

using namespace baton;
using namespace baton::lab;
using namespace baton::test;

namespace {

constexpr std::int32_t kLayers = 6;

std::shared_ptr<StepEngine> engine_of(std::uint64_t seed, TinyOptions model = {}) {
  model.seed = seed;
  model.layers = kLayers;
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), LocalEngineOptions{});
}

}  // namespace

TEST_CASE("droidspeak: groups are measured between two engines, and kept", "[reuse][droidspeak]") {
  const auto author = engine_of(1), reader = engine_of(2);
  std::vector<CalibrationHandOver> hand_overs;
  for (std::uint64_t i = 0; i < 3; ++i)
    hand_overs.push_back(
        {random_tokens(20, i), random_tokens(24, 10 + i), random_tokens(9, 20 + i), random_tokens(7, 30 + i)});
  const auto measured = measure_groups(*author, *reader, hand_overs, {}, {.reply_tokens = 6, .step = 2});
  REQUIRE(measured);
  CHECK(measured->problem.empty());
  CHECK(measured->hand_overs == 3);
  CHECK(measured->direct > 0);
  REQUIRE(measured->points.size() == 6);  // 0 to 1, 3, 5; 2 to 3, 5; 4 to 5
  for (const GroupPoint& point : measured->points) {
    CHECK(point.layers() % 2 == 0);
    if (point.layers() == kLayers)
      CHECK(point.left == 0.0);
    else
      CHECK(point.left > 0.0);
  }
  CHECK(measure_groups(*author, *reader, hand_overs, {}, {.reply_tokens = 6, .step = 5})->points.size() ==
        2);  // 0 to 4, 5
  CHECK_THROWS_WITH(measure_groups(*author, *engine_of(2, {.kv_heads = 3}), hand_overs, {}),
                    Catch::Matchers::Contains("they differ in KV heads: 2 and 3"));
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_FALSE(measure_groups(*author, *reader, hand_overs, {.stop = stopped.get_token()}));

  const StoredPair pair{"a", "b", kLayers, "synthetic", 0.1, *measured};
  const StoredPair read = parse_pair(to_json(pair), "file");
  CHECK(read.author == "a");
  CHECK(read.effect.points.size() == 6);
  CHECK(read.group().end == pair.group().end);
  CHECK(to_json(read) == to_json(pair));
  const auto broken = [&](const std::string& what, const std::string& with) {
    std::string json = to_json(pair);
    const auto at = json.find(what);
    REQUIRE(at != std::string::npos);
    json.replace(at, what.size(), with);
    return json;
  };
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(parse_pair(broken("\"schema\": 1", "\"schema\": 2"), "file"), Contains("schema"));
  CHECK_THROWS_WITH(parse_pair(broken("\"layers\": 6", "\"layers\": 4"), "file"), Contains("points.end"));
  CHECK_THROWS_WITH(parse_pair(broken("\"author\": \"a\"", "\"author\": 3"), "file"), Contains("author"));
  CHECK_THROWS_WITH(parse_pair(broken("\"points\": [", "\"points\": 1, \"x\": ["), "file"), Contains("points"));
  CHECK_THROWS_AS(parse_pair("{", "file"), ModelError);
}

}  // namespace pair_test
