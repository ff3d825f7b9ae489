// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/thread_time.h"

namespace baton::text {
namespace {

TEST_CASE("a table of merges finds the ranks that were set last") {
  MergeTable table(3);
  CHECK(table.rank(1, 2) == kNoMerge);
  table.set(1, 2, 7);
  table.set(2, 1, 8);
  table.set(-1, 2, 9);
  table.set(1, 2, 3);
  CHECK(table.rank(1, 2) == 3);
  CHECK(table.rank(2, 1) == 8);
  CHECK(table.rank(-1, 2) == 9);
  CHECK(table.rank(2, 2) == kNoMerge);
  CHECK(MergeTable(0).rank(0, 0) == kNoMerge);
}

TEST_CASE("merges that meet in one place of a fixed hash do not make a table of them slow") {
  struct Pair {
    std::uint64_t hash;
    TokenId left, right;
  };
  // The multiplier of Fibonacci hashing, which tables without a seed often have; ids as a tokenizer.json can choose.
  std::vector<Pair> pairs;
  for (TokenId left = 0; left < 2000; ++left) {
    for (TokenId right = 0; right < 2000; ++right) {
      const std::uint64_t key = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
      pairs.push_back({key * 0x9E3779B97F4A7C15u, left, right});
    }
  }
  constexpr std::size_t kMerges = 60'000;
  std::nth_element(pairs.begin(), pairs.begin() + kMerges, pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.hash < b.hash; });
  pairs.resize(kMerges);
  const double begin = test::thread_seconds();
  MergeTable table(kMerges);
  for (std::uint32_t rank = 0; rank < kMerges; ++rank) table.set(pairs[rank].left, pairs[rank].right, rank);
  for (std::uint32_t rank = 0; rank < kMerges; ++rank) REQUIRE(table.rank(pairs[rank].left, pairs[rank].right) == rank);
  CHECK(test::thread_seconds() - begin < 0.5 * test::slowdown());
}

}  // namespace
}  // namespace baton::text
