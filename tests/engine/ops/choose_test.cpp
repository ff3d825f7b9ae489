// SPDX-License-Identifier: Apache-2.0
// Choosing a token is exact: every backend gives the id that a plain reading of the definition gives.
#include <algorithm>
#include <numeric>

#include "tests/engine/ops/subjects.h"

namespace baton::test::choose_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The definition, by sorting everything.
std::int32_t defined(std::span<const float> logits, const TokenChoice& how) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) ids.push_back(static_cast<std::int32_t>(i));
  }
  if (ids.empty()) return -1;
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (how.temperature == 0.0f) return ids.front();
  const float highest = logit(ids.front());
  const auto scaled = [&](std::int32_t id) { return (logit(id) - highest) / how.temperature; };
  if (how.top_k > 0 && how.top_k < static_cast<std::int32_t>(ids.size())) {
    const float bar = scaled(ids[static_cast<std::size_t>(how.top_k) - 1]);
    std::erase_if(ids, [&](auto id) { return scaled(id) < bar; });
  }
  const auto weight = [&](std::int32_t id) { return weight_of(scaled(id)); };
  std::erase_if(ids, [&](auto id) { return weight(id) == 0; });
  std::stable_sort(ids.begin(), ids.end(),
                   [&](auto a, auto b) { return weight(a) != weight(b) ? weight(a) > weight(b) : a < b; });
  const auto total = [&] {
    return std::accumulate(ids.begin(), ids.end(), std::uint64_t{0},
                           [&](auto sum, auto id) { return sum + weight(id); });
  };
  if (how.top_p < 1.0f) {
    const auto target = static_cast<std::uint64_t>(how.top_p * static_cast<double>(total()));
    std::uint64_t sum = 0;
    std::size_t kept = 0;
    do sum += weight(ids[kept++]);
    while (sum < target);
    ids.resize(kept);
  }
  std::erase_if(ids, [&](auto id) {
    return static_cast<double>(weight(id)) < static_cast<double>(how.min_p) * static_cast<double>(kUnitWeight);
  });
  std::sort(ids.begin(), ids.end());
  auto left = static_cast<std::uint64_t>(how.uniform * static_cast<double>(total()));
  left = std::min(left, total() - 1);
  for (const std::int32_t id : ids) {
    if (left < weight(id)) return id;
    left -= weight(id);
  }
  return ids.back();
}

std::vector<ChosenToken> choose(Backend& backend, const Values& logits, const std::vector<TokenChoice>& how) {
  std::vector<ChosenToken> chosen(how.size());
  const Buffer out = backend.allocate(how.size() * sizeof(ChosenToken));
  backend.choose(reinterpret_cast<ChosenToken*>(out.data()), logits.view(), how);
  backend.copy_to_host(std::as_writable_bytes(std::span(chosen)), out.data());
  return chosen;
}

/// Rows of logits of several kinds: bell-shaped, full of ties, flat, steep, with numbers that take no part.
Values rows_of_logits(Random& random, std::int64_t rows, std::int64_t vocabulary) {
  Values logits = random.values(rows, vocabulary);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t id = 0; id < vocabulary; ++id) {
      float& value = logits.at(row, id);
      if (row % 5 == 1) value = std::round(3 * value);
      if (row % 5 == 2) value = 1.5f;
      if (row % 5 == 3) value *= 20;
      if (row % 5 == 4 && id % 3 == 0) value = id % 2 == 0 ? kInfinity : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return logits;
}

TEST_CASE("a token is chosen as defined, by every backend", "[choose]") {
  Random random(41);
  for_each_subject([&](Backend& backend, const Subject&, const Way&) {
    for (const std::int64_t vocabulary : {1, 3, 31, 258, 1500}) {
      std::vector<TokenChoice> how;
      for (int row = 0; row < 25; ++row) {
        TokenChoice one;
        one.temperature = row % 4 == 0 ? 0.0f : row % 4 == 1 ? 1.0f : 0.01f + std::abs(random.normal());
        if (row % 3 != 0) one.top_k = random.integer(1, 2 * vocabulary + 1);
        if (row % 2 == 0) one.top_p = static_cast<float>(random.integer(1, 1000)) / 1000;
        if (row % 7 == 0) one.min_p = static_cast<float>(random.integer(1, 1000)) / 1000;
        one.uniform = row % 6 == 0 ? 0.0 : row % 6 == 1 ? 1.0 - 0x1p-53 : random.integer(0, 1 << 30) * 0x1p-30;
        how.push_back(one);
      }
      const Values logits = rows_of_logits(random, static_cast<std::int64_t>(how.size()), vocabulary);
      const std::vector<ChosenToken> chosen = choose(backend, logits, how);
      for (std::size_t row = 0; row < how.size(); ++row) {
        INFO("V " << vocabulary << " row " << row << " temperature " << how[row].temperature << " top-k "
                  << how[row].top_k << " top-p " << how[row].top_p << " min-p " << how[row].min_p << " uniform "
                  << how[row].uniform);
        REQUIRE(chosen[row].id == defined(logits.row(static_cast<std::int64_t>(row)), how[row]));
      }
    }
  });
}

TEST_CASE("the entropy of a choice, on every backend", "[choose]") {
  Random random(42);
  for_each_backend([&](Backend& backend) {
    const Values logits = rows_of_logits(random, 10, 700);
    std::vector<TokenChoice> how(10);
    for (std::size_t row = 0; row < how.size(); ++row) {
      how[row].temperature = row % 2 == 0 ? 0.0f : 1.0f;
      how[row].entropy = row == 7 ? 0 : 1;
    }
    const std::vector<ChosenToken> chosen = choose(backend, logits, how);
    for (std::size_t row = 0; row < how.size(); ++row) {
      const float expected = row == 7 ? 0.0f : entropy_of(logits.row(static_cast<std::int64_t>(row)));
      REQUIRE(chosen[row].entropy == Approx(expected).epsilon(1e-6).margin(1e-6));
    }
  });
}

TEST_CASE("nothing is chosen from logits of which none is finite", "[choose]") {
  for_each_backend([](Backend& backend) {
    const Values logits(2, 40, -kInfinity);
    const std::vector<ChosenToken> chosen = choose(backend, logits, {{.temperature = 0}, {.temperature = 1}});
    REQUIRE(chosen[0].id == -1);
    REQUIRE(chosen[1].id == -1);
    REQUIRE_THROWS_AS(choose(backend, logits, {{}, {}, {}}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace baton::test::choose_test
