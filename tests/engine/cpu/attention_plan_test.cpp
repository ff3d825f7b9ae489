// SPDX-License-Identifier: Apache-2.0
// Every key block of every row is computed once, whatever rows, heads and threads a step has.
#include "engine/cpu/attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace baton::test::attention_plan_test {
namespace {

struct Step {
  std::vector<std::int32_t> sequence, position, key_begin;
  RowSpan span() const { return {sequence, position, key_begin}; }
};

Step random_step(std::mt19937& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Step step;
  for (int sequence = 0, count = draw(1, 6); sequence < count; ++sequence) {
    std::int32_t position = draw(0, 5000);
    for (int row = 0, rows = draw(0, 3) == 0 ? draw(1, 300) : 1; row < rows; ++row, ++position) {
      step.sequence.push_back(sequence);
      step.position.push_back(position);
      step.key_begin.push_back(draw(0, 2) == 0 ? draw(0, position) : 0);
    }
  }
  return step;
}

TEST_CASE("a plan of attention covers every block of every tile and group once") {
  std::mt19937 random(7);
  cpu::RowAttentionPlan plan;
  int cut = 0;
  for (int round = 0; round < 400; ++round) {
    const Step step = random_step(random);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const cpu::RowAttentionSizes sizes{draw(1, 12), draw(1, 16), 97, draw(1, 16)};
    cpu::plan_attention(plan, step.span(), sizes);
    const auto groups = static_cast<std::size_t>(sizes.groups);

    std::int64_t row = 0;
    for (const cpu::RowAttentionTile& tile : plan.tiles) {
      REQUIRE(tile.begin == row);
      row = tile.end;
      REQUIRE(tile.rows() * sizes.heads <= cpu::kMaxQueries);
      for (std::int64_t i = tile.begin; i < tile.end; ++i) {
        const std::int32_t at = plan.order[static_cast<std::size_t>(i)];
        REQUIRE(step.sequence[static_cast<std::size_t>(at)] ==
                step.sequence[static_cast<std::size_t>(plan.order[static_cast<std::size_t>(tile.begin)])]);
        REQUIRE(step.key_begin[static_cast<std::size_t>(at)] / kKeyBlock >= tile.block);
        REQUIRE(step.position[static_cast<std::size_t>(at)] / kKeyBlock < tile.block_end);
      }
    }
    REQUIRE(row == static_cast<std::int64_t>(step.position.size()));

    std::vector<std::int64_t> blocks(plan.tiles.size() * groups), tasks(plan.parts_left.size());
    std::vector<std::vector<int>> seen(plan.tiles.size() * groups);
    for (const cpu::RowAttentionPart& part : plan.parts) {
      const cpu::RowAttentionTile& tile = plan.tiles[part.tile];
      const std::size_t unit = part.tile * groups + static_cast<std::size_t>(part.group);
      seen[unit].resize(static_cast<std::size_t>(tile.blocks()));
      REQUIRE(part.block >= tile.block);
      REQUIRE(part.block_end <= tile.block_end);
      for (std::int64_t block = part.block; block < part.block_end; ++block) {
        REQUIRE(++seen[unit][static_cast<std::size_t>(block - tile.block)] == 1);
        ++blocks[unit];
      }
      ++tasks[part.parts_left];
      if (part.partials < 0) continue;
      ++cut;
      REQUIRE(part.partials + sizes.heads * tile.rows() * tile.blocks() * sizes.floats <=
              static_cast<std::int64_t>(plan.partials.size()));
    }
    for (std::size_t unit = 0; unit < blocks.size(); ++unit)
      REQUIRE(blocks[unit] == plan.tiles[unit / groups].blocks());
    for (std::size_t i = 0; i < tasks.size(); ++i) REQUIRE(tasks[i] == plan.parts_left[i]);
  }
  CHECK(cut > 200);
}

TEST_CASE("a plan of attention gives threads equal shares of a decode step") {
  const std::vector<std::int32_t> sequence = {0}, position = {6399}, key_begin = {0};  // 100 blocks
  for (const int threads : {2, 3, 4, 8}) {
    cpu::RowAttentionPlan plan;
    cpu::plan_attention(plan, {sequence, position, key_begin}, {3, 3, 97, threads});
    std::vector<std::int64_t> load(static_cast<std::size_t>(threads));  // as threads take the tasks
    std::int64_t total = 0;
    for (const cpu::RowAttentionPart& part : plan.parts) {
      *std::min_element(load.begin(), load.end()) += part.work;
      total += part.work;
    }
    INFO(threads << " threads, " << plan.parts.size() << " tasks");
    CHECK(*std::max_element(load.begin(), load.end()) * threads < total * 11 / 10);
  }
}

TEST_CASE("a plan of attention keeps what tasks share within bounds") {
  std::vector<std::int32_t> sequence(13), position(13), key_begin(13);
  for (std::int32_t i = 0; i < 13; ++i) position[static_cast<std::size_t>(i)] = (1 << 20) + i;  // a million tokens
  cpu::RowAttentionPlan plan;
  cpu::plan_attention(plan, {sequence, position, key_begin}, {8, 4, 225, 64});
  CHECK(plan.partials.size() <= std::size_t{8} << 20);
  CHECK(plan.parts.size() >= 8);
}

}  // namespace
}  // namespace baton::test::attention_plan_test
