// SPDX-License-Identifier: Apache-2.0
// Method epic: which tokens it recomputes, and what is left of that through the engine.
#include "engine/reuse/lab/epic/epic.h"

#include "tests/support/reuse_prompts.h"

namespace epic_test {

using namespace baton;
using namespace baton::test;
using namespace baton::test::reuse_prompts;

TEST_CASE("epic recomputes the first tokens of every text, in all layers", "[reuse][schedule]") {
  const std::vector<PlacedSegment> segments = {{4, nullptr, {}, 20}, {31, nullptr, {}, 9}};
  ReuseOptions epic;
  epic.method = &epic_method();
  const auto positions = [&] {
    std::vector<std::int32_t> at;
    for (const ScheduledRow& row : make_schedule(epic, {45, 0, segments, 5}).rows) {
      CHECK(row.path.enter == 0);
      CHECK(row.path.leave == 5);
      if ((row.position >= 4 && row.position < 24) || (row.position >= 31 && row.position < 40))
        at.push_back(row.position);
    }
    return at;
  };
  own<EpicOptions>(epic).tokens = 3;
  CHECK(positions() == std::vector<std::int32_t>{4, 5, 6, 31, 32, 33});
  own<EpicOptions>(epic).reuse = 0.8;  // a fifth of each text, rounded down
  CHECK(positions() == std::vector<std::int32_t>{4, 5, 6, 7, 31});
}

TEST_CASE("epic: every token recomputed computes all entries", "[reuse]") {
  ReuseOptions epic = method("epic");
  own<EpicOptions>(epic).tokens = std::numeric_limits<std::int32_t>::max();
  check_computed(epic, {70 * kLayers, 0});
  own<EpicOptions>(epic).tokens = 12;
  check_computed(epic, {(30 + 12) * kLayers, 40 - 12});
}

TEST_CASE("epic: a prefix that reaches into a segment counts towards its first tokens", "[reuse]") {
  for (const std::size_t common : {1u, 7u, 39u}) {
    const auto engine = engine_of();
    const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
    std::vector<TokenId> stem = random_tokens(50, 3);
    stem.insert(stem.end(), part.tokens.begin(), part.tokens.begin() + static_cast<std::ptrdiff_t>(common));
    greedy(*engine, {{"", stem, nullptr, 0}}, method("prefix", true), 1);
    ReuseOptions epic = method("epic", true);
    own<EpicOptions>(epic).tokens = 8;
    const auto head = static_cast<std::int64_t>(common < 8 ? 8 - common : 0);
    INFO(common << " tokens in common");
    CHECK(greedy(*engine, {text(50, 3), part, text(10, 4)}, epic).result.kv_computed == (10 + head) * kLayers);
  }
}

TEST_CASE("epic: options out of range are errors, and what is asked is left", "[reuse]") {
  const auto engine = engine_of();
  ReuseOptions epic = method("epic");
  own<EpicOptions>(epic).tokens = -1;
  check_refused(*engine, epic, "epic_tokens is -1; expected at least 0");
  epic = method("epic");
  own<EpicOptions>(epic).reuse = 0.7;
  check_left(epic);
}

TEST_CASE("epic: the more is recomputed, the closer to full prefill", "[reuse]") {
  std::vector<ReuseOptions> ladder = {method("direct")};
  for (const std::int32_t k : {8, 24, 40, 48}) {
    ladder.push_back(method("epic"));
    own<EpicOptions>(ladder.back()).tokens = k;
  }
  check_ladder(ladder);
}

}  // namespace epic_test
