// SPDX-License-Identifier: Apache-2.0
// What an attention plan promises, over random calls: every row's keys are covered exactly once, tiles have no gaps,
// inner limits are multiples of the key block, slots do not overlap.
#include "engine/cuda/attention/attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

namespace baton::test::plan_test {
namespace {

using namespace cuda;

struct Rows {
  std::vector<std::int32_t> sequence, position, begin;
  RowSpan span() const { return {sequence, position, begin}; }
  void add(std::int32_t s, std::int32_t p, std::int32_t b) {
    sequence.push_back(s), position.push_back(p), begin.push_back(b);
  }
};

void check_plan(const AttentionPlan& plan, const Rows& rows, const AttentionShape& shape) {
  const std::size_t count = rows.position.size();
  REQUIRE(plan.rows().size() == count);
  std::set<std::int32_t> seen;
  for (const TileRow& row : plan.rows()) seen.insert(row.row);
  REQUIRE(seen.size() == count);

  std::vector<std::map<std::int32_t, std::int32_t>> covered(count);  // of each row: begin -> end of its tiles
  std::set<std::int32_t> slots;
  std::map<std::int32_t, std::set<std::int32_t>> slots_of;  // by row
  for (const auto& [tiles, most] : {std::pair(plan.narrow(), kNarrowRows), std::pair(plan.wide(), kWideRows)}) {
    for (const AttentionTile& tile : tiles) {
      REQUIRE(tile.rows >= 1);
      REQUIRE(tile.rows * shape.part_heads() <= most);
      REQUIRE(tile.key_begin < tile.key_end);
      std::int32_t low = INT32_MAX, high = 0, all_begin = 0, all_end = INT32_MAX;
      std::vector<bool> keys;
      for (std::int32_t r = 0; r < tile.rows; ++r) {
        const TileRow& row = plan.rows()[static_cast<std::size_t>(tile.row_begin + r)];
        const auto i = static_cast<std::size_t>(row.row);
        REQUIRE(rows.sequence[i] == tile.sequence);
        REQUIRE(row.key_begin == rows.begin[i]);
        REQUIRE(row.key_end == rows.position[i] + 1);
        low = std::min(low, row.key_begin), high = std::max(high, row.key_end);
        all_begin = std::max(all_begin, row.key_begin), all_end = std::min(all_end, row.key_end);
        if (keys.size() < static_cast<std::size_t>(row.key_end)) keys.resize(static_cast<std::size_t>(row.key_end));
        std::fill(keys.begin() + row.key_begin, keys.begin() + row.key_end, true);
        REQUIRE(covered[i].emplace(tile.key_begin, tile.key_end).second);
        if (tile.partial < 0) continue;
        REQUIRE(slots.insert(tile.partial + r).second);
        REQUIRE(tile.partial + r < plan.slots());
        slots_of[row.row].insert(tile.partial + r);
      }
      REQUIRE(tile.free_begin == all_begin);
      REQUIRE(tile.free_end == all_end);
      REQUIRE(std::count(keys.begin(), keys.end(), true) == high - low);  // no gap
      if (tile.key_begin != low) REQUIRE(tile.key_begin % kKeyBlock == 0);
      if (tile.key_end != high) REQUIRE(tile.key_end % kKeyBlock == 0);
      if (tile.partial < 0) REQUIRE((tile.key_begin == low && tile.key_end == high));
    }
  }
  std::int32_t scores = 0;
  for (const AttentionTile& tile : plan.narrow()) {
    REQUIRE(tile.scores == scores);
    scores +=
        ((tile.key_end + kKeyBlock - 1) / kKeyBlock - tile.key_begin / kKeyBlock) * tile.rows * shape.part_heads();
  }
  REQUIRE(plan.score_rows() == scores);
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(!covered[i].empty());
    REQUIRE(covered[i].begin()->first <= rows.begin[i]);
    REQUIRE(covered[i].rbegin()->second >= rows.position[i] + 1);
    std::int32_t end = covered[i].begin()->first;
    for (const auto& [from, to] : covered[i]) {
      REQUIRE(from == end);
      end = to;
    }
  }
  std::map<std::int32_t, std::set<std::int32_t>> merged;
  for (const MergeRow& merge : plan.merges()) {
    for (std::int32_t s = 0; s < merge.splits; ++s) merged[merge.row].insert(merge.partial + s * merge.stride);
  }
  REQUIRE(merged == slots_of);
  REQUIRE(static_cast<std::int32_t>(slots.size()) == plan.slots());
}

TEST_CASE("attention plan: its promises hold for random calls") {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
  AttentionPlan plan;
  for (int trial = 0; trial < 60; ++trial) {
    const std::int32_t groups[] = {1, 2, 3, 5, 7, 8, 16, 17, 100};
    const std::int32_t kv_heads = 1 + below(4);
    const AttentionShape shape{kv_heads * groups[below(9)], kv_heads};
    Rows rows;
    const std::int32_t longest = trial % 3 == 0 ? 5000 : 300;
    for (std::int32_t s = 0; s < 1 + below(4); ++s) {
      std::int32_t at = below(static_cast<std::uint32_t>(longest));
      const std::int32_t n = 1 + below(150);
      for (std::int32_t i = 0; i < n; ++i, at += trial % 2 == 0 ? 1 : 1 + below(40)) {
        rows.add(s, at,
                 trial % 4 == 1   ? below(static_cast<std::uint32_t>(at + 1))
                 : trial % 4 == 3 ? std::max(0, at - 30)
                                  : 0);
      }
    }
    std::vector<std::size_t> order(rows.position.size());
    Rows shuffled;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (trial % 5 != 0) std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) shuffled.add(rows.sequence[i], rows.position[i], rows.begin[i]);
    INFO("trial " << trial << ", heads " << shape.heads << " of " << shape.kv_heads);
    plan.make(shuffled.span(), shape, trial % 6 == 0 ? 1 : 528);
    check_plan(plan, shuffled, shape);
  }
}

TEST_CASE("attention plan: decode is narrow and split, prefill wide and not") {
  AttentionPlan plan;
  Rows decode;
  for (std::int32_t s = 0; s < 4; ++s) decode.add(s, 4000 + s, 0);
  plan.make(decode.span(), {32, 8}, 4 * 132);
  REQUIRE(plan.wide().empty());
  REQUIRE(plan.narrow().size() * 8 >= 500);  // 4 rows, 8 kv heads, about 528 blocks wanted
  REQUIRE(plan.merges().size() == 4);

  Rows prefill;
  for (std::int32_t p = 0; p < 4096; ++p) prefill.add(0, p, 0);
  plan.make(prefill.span(), {32, 8}, 4 * 132);
  REQUIRE(plan.narrow().empty());
  REQUIRE(plan.wide().size() == 4096 / 16);
  REQUIRE(plan.merges().empty());
  REQUIRE(plan.wide().front().key_end == 4096);  // the longest first
  for (const AttentionTile& tile : plan.wide()) {
    REQUIRE(tile.rows == 16);  // times four query heads
    REQUIRE(tile.free_end == tile.key_end - 15);
  }

  Rows one;  // one key: nothing to split
  one.add(0, 0, 0);
  plan.make(one.span(), {8, 8}, 528);
  REQUIRE(plan.narrow().size() == 1);
  REQUIRE(plan.slots() == 0);
}

TEST_CASE("attention plan: a padded plan has sizes that come again, and nothing more to do") {
  const AttentionShape shape{32, 8};
  std::set<std::size_t> sizes;
  for (std::int32_t keys = 1000; keys < 3000; ++keys) {
    Rows rows;
    rows.add(0, keys, 0);
    rows.add(1, 500, 0);
    AttentionPlan plan;
    plan.make(rows.span(), shape, 512);
    const std::vector<AttentionTile> tiles(plan.narrow().begin(), plan.narrow().end());
    const std::size_t merges = plan.merges().size();
    const std::int32_t slots = plan.slots(), scores = plan.score_rows();
    plan.make(rows.span(), shape, 512, true);
    sizes.insert(plan.narrow().size());
    REQUIRE(plan.narrow().size() >= tiles.size());
    REQUIRE(2 * plan.narrow().size() <= 3 * tiles.size());
    REQUIRE(plan.slots() >= slots);
    REQUIRE(plan.score_rows() >= scores);
    for (std::size_t i = 0; i < plan.narrow().size(); ++i)
      REQUIRE(plan.narrow()[i].rows == (i < tiles.size() ? tiles[i].rows : 0));
    for (std::size_t i = 0; i < plan.merges().size(); ++i) REQUIRE((plan.merges()[i].splits > 0) == (i < merges));
  }
  REQUIRE(sizes.size() <= 5);
}

}  // namespace
}  // namespace baton::test::plan_test
