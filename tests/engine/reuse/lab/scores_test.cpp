// SPDX-License-Identifier: Apache-2.0
// Which tokens a method recomputes, from numbers made by hand.
#include "engine/reuse/lab/scores/scores.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

namespace selection_test {

using namespace baton;

TEST_CASE("selection: thresholds, suffix and their union", "[reuse]") {
  const std::vector<float> deviation = {0.1f, 0.1f, 0.6f, 0.1f, 0.1f, 0.1f, 0.25f, 0.1f};  // mean 0.18125
  const std::vector<float> received = {9, 1, 1, 1, 1, 4, 1, 1};                            // mean 2.375
  const auto chosen = [&](SelectionOptions options) {
    std::vector<int> indices;
    const std::vector<bool> flags = select_tokens(options, deviation, received);
    REQUIRE(flags.size() == 8);
    for (int i = 0; i < 8; ++i)
      if (flags[static_cast<std::size_t>(i)]) indices.push_back(i);
    return indices;
  };
  using Indices = std::vector<int>;
  CHECK(chosen({.influence = false, .suffix = 0}) == Indices{2});
  CHECK(chosen({.influence = false, .suffix = 0, .deviation_threshold = 1.3f}) == Indices{2, 6});
  CHECK(chosen({.deviation = false, .suffix = 0}) == Indices{0, 5});
  CHECK(chosen({.deviation = false, .suffix = 0, .influence_threshold = 2.0f}) == Indices{0});
  CHECK(chosen({.deviation = false, .influence = false, .suffix = 3}) == Indices{5, 6, 7});
  CHECK(chosen({.suffix = 1}) == Indices{0, 2, 5, 7});
  CHECK(chosen({.deviation = false, .influence = false, .suffix = 99}).size() == 8);
  CHECK(chosen({.deviation = false, .influence = false, .suffix = -1}).empty());
  CHECK(chosen({.deviation = false, .influence = false, .suffix = 0, .all = true}).size() == 8);
  CHECK(chosen({.suffix = 0, .share = 0.25}) == Indices{2, 6});
  CHECK(chosen({.suffix = 1, .share = 0.25}) == Indices{2, 7});
  CHECK(chosen({.suffix = 10, .share = 0.25}) == Indices{6, 7});  // the suffix is part of the share
  CHECK(chosen({.suffix = 0, .share = 0.01}) == Indices{2});
  CHECK(chosen({.suffix = 0, .share = 1.0}).size() == 8);
}

TEST_CASE("selection: deviations below rounding choose nothing, and nothing known is no error", "[reuse]") {
  const std::vector<float> rounding = {0, 5e-7f, 0, 1e-7f}, zero(4, 0.0f), none;
  const auto count = [](const SelectionOptions& options, const std::vector<float>& deviation,
                        const std::vector<float>& received) {
    const auto flags = select_tokens(options, deviation, received);
    return std::count(flags.begin(), flags.end(), true);
  };
  SelectionOptions options{.suffix = 0};
  CHECK(count(options, rounding, none) == 0);
  CHECK(count(options, zero, zero) == 0);
  CHECK(count(options, none, none) == 0);
  options.suffix = 2;
  CHECK(count(options, rounding, none) == 2);
  options = {.suffix = 0, .share = 0.5};
  CHECK(count(options, rounding, none) == 2);
  CHECK(count(options, none, none) == 0);
  CHECK(largest(std::vector<double>{1, 3, 3, 2}, 1) ==
        std::vector<bool>{false, false, true, false});  // of equals the later
  CHECK(largest(std::vector<double>{1, 3}, 9) == std::vector<bool>{true, true});
}

TEST_CASE("selection: the head is chosen, and is the first part of a budget", "[reuse]") {
  const std::vector<float> deviation = {0.1f, 0.1f, 0.1f, 0.1f, 0.9f, 0.1f};
  const auto chosen = [&](const SelectionOptions& options) { return select_tokens(options, deviation, {}); };
  CHECK(chosen({.suffix = 0, .head = 2}) == std::vector<bool>{true, true, false, false, true, false});
  CHECK(chosen({.suffix = 0, .head = 2, .share = 0.5}) == std::vector<bool>{true, true, false, false, true, false});
  CHECK(chosen({.suffix = 5, .head = 2, .share = 0.34}) == std::vector<bool>{true, true, false, false, false, true});
  CHECK(chosen({.suffix = 0, .head = 100}) == std::vector<bool>(6, true));
}

TEST_CASE("selection: by entropy, after the head", "[reuse]") {
  const std::vector<float> entropy = {0.0f, 0.1f, 2.0f, 0.0f, 1.0f, 0.3f, 0.0f, 0.0f};
  const auto chosen = [&](const SelectionOptions& options) { return best_share(options, entropy); };
  CHECK(chosen({.suffix = 0, .share = 0.25}) ==
        std::vector<bool>{false, false, true, false, true, false, false, false});
  CHECK(chosen({.suffix = 0, .head = 1, .share = 0.25}) ==
        std::vector<bool>{true, false, true, false, false, false, false, false});
  CHECK(chosen({.suffix = 1, .head = 1, .share = 0.375}) ==
        std::vector<bool>{true, false, true, false, false, false, false, true});
  CHECK(chosen({.suffix = 0, .head = 9, .share = 0.5}) ==
        std::vector<bool>{true, true, true, true, false, false, false, false});
  CHECK(best_share({.share = 0.5}, {}).empty());
}

TEST_CASE("selection: by author, entropy and attention are parts of their sums", "[reuse]") {
  const std::vector<float> entropy = {0.0f, 0.6f, 0.0f, 0.4f, 0.0f, 0.0f}, received = {10, 0, 50, 0, 0, 40};
  const SelectionOptions half{.suffix = 0, .share = 0.5, .score = SelectionOptions::Score::author};
  using Flags = std::vector<bool>;
  CHECK(select_by_author(half, entropy, received) == Flags{false, true, true, false, false, true});  // later of equals
  CHECK(select_by_author(half, entropy, {}) == Flags{false, true, false, true, false, true});
  CHECK(select_by_author(half, {}, received) == Flags{true, false, true, false, false, true});
  SelectionOptions ends = half;
  ends.head = ends.suffix = 1;
  CHECK(select_by_author(ends, entropy, received) == Flags{true, true, false, false, false, true});
  CHECK(select_by_author(half, std::vector<float>(4, 0.0f), {}) == Flags{false, false, true, true});
  CHECK(select_by_author(half, {}, {}).empty());
}

TEST_CASE("selection: the paper's rules are a union, and at a fixed number both thresholds move by one factor",
          "[reuse]") {
  std::mt19937_64 random(7);
  std::exponential_distribution<float> draw;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<float> deviation(60), received(60);
    for (float& value : deviation) value = draw(random);
    for (float& value : received) value = draw(random);
    double d = 0, a = 0;  // means
    for (std::size_t i = 0; i < 60; ++i) d += double{deviation[i]} / 60, a += double{received[i]} / 60;
    const auto by_definition = [&](double factor) {
      std::vector<bool> flags(60);
      for (std::size_t i = 0; i < 60; ++i)
        flags[i] = deviation[i] > factor * 1.5 * d || received[i] > factor * 1.45 * a || i >= 50;
      return flags;
    };
    SelectionOptions paper = SelectionOptions::by_paper();
    CHECK(select_tokens(paper, deviation, received) == by_definition(1.0));
    // The factor is lowered until as many are chosen: the choice must be one that some factor gives.
    for (const std::int32_t count : {10, 14, 20, 37, 60}) {
      paper.count = count;
      const std::vector<bool> chosen = select_tokens(paper, deviation, received);
      CHECK(std::count(chosen.begin(), chosen.end(), true) == count);
      double low = 0.0, high = 100.0;
      for (int i = 0; i < 200; ++i) {
        const double middle = 0.5 * (low + high);
        const auto flags = by_definition(middle);
        (std::count(flags.begin(), flags.end(), true) > count ? low : high) = middle;
      }
      CHECK(chosen == by_definition(high));
    }
    paper.count = 4;  // fewer than the suffix: its last tokens
    const std::vector<bool> last = select_tokens(paper, deviation, received);
    CHECK(std::count(last.begin() + 56, last.end(), true) == 4);
  }
}

}  // namespace selection_test
