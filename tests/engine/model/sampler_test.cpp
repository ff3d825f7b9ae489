// SPDX-License-Identifier: Apache-2.0
#include "engine/model/sampler.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>

#include "tests/support/golden.h"

namespace sampler_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// How often each id is drawn.
std::map<TokenId, int> draw(const std::vector<float>& logits, const SamplingParams& params, int count,
                            const std::vector<TokenId>& seen = {}) {
  Sampler sampler(params);
  std::map<TokenId, int> counts;
  for (int i = 0; i < count; ++i) {
    std::vector<float> scratch = logits;
    ++counts[sampler.sample(scratch, {seen, {}})];
  }
  return counts;
}

TokenId once(std::vector<float> logits, const SamplingParams& params, const std::vector<TokenId>& seen = {}) {
  return Sampler(params).sample(logits, {seen, {}});
}

/// Sum of (observed - expected)^2 / expected: its mean is the number of ids less one, its variance twice that.
double chi_square(const std::map<TokenId, int>& counts, const std::map<TokenId, double>& expected, int draws) {
  double sum = 0.0;
  for (const auto& [id, probability] : expected) {
    const auto found = counts.find(id);
    const double difference = (found == counts.end() ? 0 : found->second) - probability * draws;
    sum += difference * difference / (probability * draws);
  }
  return sum;
}

double chi_square_bound(std::size_t ids) {  // six standard deviations
  const double degrees = static_cast<double>(ids) - 1.0;
  return degrees + 6.0 * std::sqrt(2.0 * degrees) + 6.0;
}

}  // namespace

TEST_CASE("greedy takes the first of the highest") {
  const SamplingParams greedy;
  CHECK(once({1.0f, 3.0f, 2.0f, 3.0f}, greedy) == 1);
  CHECK(once({-5.0f, -7.0f}, greedy) == 0);
  CHECK(once({-kInfinity, -2.0f, -kInfinity}, greedy) == 1);
}

TEST_CASE("the repetition penalty counts each seen id once, and ignores ids outside the vocabulary") {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  std::vector<float> logits = {4.0f, 3.0f, -1.0f, -1.5f};
  const std::vector<TokenId> seen = {0, 2, 0, 0, 99, -1};
  CHECK(Sampler(params).sample(logits, {seen, {}}) == 1);
  CHECK(logits == std::vector<float>{2.0f, 3.0f, -2.0f, -1.5f});

  Sampler sampler(params);  // nothing is left over for the next call
  std::vector<float> again = {4.0f, 3.0f, -1.0f, -1.5f};
  sampler.sample(again, {seen, {}});
  again = {4.0f, 3.0f, -1.0f, -1.5f};
  sampler.sample(again, {std::vector<TokenId>{1}, {}});
  CHECK(again == std::vector<float>{4.0f, 1.5f, -1.0f, -1.5f});
}

TEST_CASE("presence and frequency penalties count the output alone, behind the repetition penalty") {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  std::vector<float> logits = {4.0f, 3.0f, -1.0f, -1.5f};
  const std::vector<TokenId> seen = {0, 2, 2, 99, 2}, output = {2, 99, 2};
  CHECK(params.problem().empty());
  CHECK(Sampler(params).penalises());
  CHECK(Sampler(params).sample(logits, {seen, output}) == 1);
  CHECK(logits == std::vector<float>{2.0f, 3.0f, -2.0f - 0.5f - 2 * 0.25f, -1.5f});

  SamplingParams wanted;  // a negative penalty favours repetition
  wanted.frequency_penalty = -2.0f;
  logits = {4.0f, 3.0f, 2.0f};
  CHECK(Sampler(wanted).sample(logits, {seen, output}) == 2);
  wanted.frequency_penalty = kInfinity;
  CHECK_FALSE(wanted.problem().empty());
}

TEST_CASE("filters keep the ids that Transformers keeps, with its probabilities") {
  std::ifstream file(golden_folder() / "sampler.json");
  const nlohmann::json goldens = nlohmann::json::parse(file);
  REQUIRE(goldens.size() >= 30);
  constexpr int kDraws = 20000;
  for (const nlohmann::json& golden : goldens) {
    const nlohmann::json& given = golden.at("params");
    const std::vector<float> logits = decode_floats(golden.at("logits"));
    INFO(given.dump() << " over " << logits.size());
    SamplingParams params;
    params.temperature = given.value("temperature", 1.0f);
    params.top_k = given.value("top_k", 0);
    params.top_p = given.value("top_p", 1.0f);
    params.min_p = given.value("min_p", 0.0f);
    params.repetition_penalty = given.value("repetition_penalty", 1.0f);
    params.seed = 1;

    const std::vector<TokenId> ids = golden.at("ids");
    const std::vector<double> probabilities = golden.at("probabilities");
    // Ids with few expected draws count together: they would make the bound meaningless, and may not turn up at all.
    std::map<TokenId, double> expected;
    constexpr TokenId kRare = -1;
    double rare = 0.0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (probabilities[i] * kDraws >= 20.0) {
        expected[ids[i]] = probabilities[i];
      } else {
        rare += probabilities[i];
      }
    }
    if (rare * kDraws >= 20.0) expected[kRare] = rare;

    std::map<TokenId, int> counts;
    bool outside = false;
    for (const auto& [id, count] : draw(logits, params, kDraws, golden.at("seen"))) {
      outside |= !std::binary_search(ids.begin(), ids.end(), id);
      counts[expected.contains(id) ? id : kRare] += count;
    }
    CHECK_FALSE(outside);
    for (const auto& [id, probability] : expected) CHECK(counts[id] > 0);
    CHECK(chi_square(counts, expected, kDraws) < chi_square_bound(expected.size()));
  }
}

TEST_CASE("ties for the k-th place of top-k all stay") {
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 2;
  CHECK(draw({1.0f, 2.0f, 1.0f, 0.0f, 1.0f}, params, 2000).size() == 4);
  params.top_k = 1;
  CHECK(draw({1.0f, 2.0f, 1.0f}, params, 100).size() == 1);
}

TEST_CASE("a tiny top-p and min-p 1 leave the most likely id, the lowest of equals for top-p") {
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_p = 1e-6f;
  CHECK(draw({0.0f, 2.0f, 2.0f, 1.0f}, params, 100) == std::map<TokenId, int>{{1, 100}});
  params.top_p = 1.0f;
  params.min_p = 1.0f;
  CHECK(draw({0.0f, 2.0f, 2.0f, 1.0f}, params, 100).size() == 2);
}

TEST_CASE("logits that are not finite take no part") {
  SamplingParams params;
  CHECK(once({kNaN, 1.0f, kInfinity, 2.0f, -kInfinity}, params) == 3);
  params.temperature = 1.0f;
  CHECK(draw({kNaN, 1.0f, kInfinity, 1.0f, -kInfinity}, params, 200).size() == 2);
  params.top_k = 4;
  params.top_p = 0.99f;
  CHECK(draw({kNaN, 1.0f, kInfinity, 1.0f, -kInfinity}, params, 200).size() == 2);
  for (const float temperature : {0.0f, 1.0f}) {
    params.temperature = temperature;
    CHECK_THROWS_WITH(once({-kInfinity, kNaN}, params), Contains("found none among 2"));
    CHECK_THROWS_AS(once({}, params), std::runtime_error);
  }
}

TEST_CASE("extreme temperatures and logits") {
  SamplingParams params;
  params.temperature = 1e-30f;
  CHECK(draw({1.0f, 1.001f, 0.0f}, params, 50) == std::map<TokenId, int>{{1, 50}});
  params.temperature = 1e6f;
  CHECK(draw({1.0f, 2.0f, 0.0f}, params, 300).size() == 3);
  params.temperature = 1.0f;
  CHECK(draw({3e38f, -3e38f}, params, 50) == std::map<TokenId, int>{{0, 50}});
}

TEST_CASE("the same seed gives the same ids, on every machine") {
  std::vector<float> logits(1000);
  for (std::size_t id = 0; id < logits.size(); ++id) logits[id] = static_cast<float>((id * 7919) % 1000) / 100.0f;
  SamplingParams params;
  params.temperature = 1.5f;
  const auto run = [&](std::uint64_t seed) {
    params.seed = seed;
    Sampler sampler(params);
    std::vector<TokenId> ids;
    for (int i = 0; i < 8; ++i) {
      std::vector<float> scratch = logits;
      ids.push_back(sampler.sample(scratch, {}));
    }
    return ids;
  };
  CHECK(run(42) == run(42));
  CHECK(run(42) != run(43));
  CHECK(run(42) ==
        std::vector<TokenId>{741, 163, 284, 339, 38, 868, 223, 804});  // checked against an independent program
}

TEST_CASE("a large vocabulary: partial selection keeps what a full sort would") {
  constexpr int kVocabulary = 150000;
  std::vector<float> logits(kVocabulary);
  std::uint32_t state = 1;
  for (float& logit : logits) {
    state = state * 1664525u + 1013904223u;
    logit = static_cast<float>(state >> 8) / 16777216.0f * 12.0f;
  }
  // The nucleus by definition: sorted, in double.
  std::vector<int> order(kVocabulary);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - 12.0);
  SamplingParams params;
  params.temperature = 1.0f;
  for (const float top_p : {0.001f, 0.1f, 0.9f, 0.999f}) {
    double mass = 0.0;
    std::size_t size = 0;
    while (mass < top_p * total) mass += std::exp(static_cast<double>(logits[order[size++]]) - 12.0);
    const float lowest = logits[order[size - 1]];
    params.top_p = top_p;
    Sampler sampler(params);
    float lowest_drawn = kInfinity;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> scratch = logits;
      lowest_drawn = std::min(lowest_drawn, logits[sampler.sample(scratch, {})]);
    }
    INFO("top_p " << top_p << " keeps " << size);
    CHECK(lowest_drawn >= lowest - 1e-4f);
  }
}

TEST_CASE("parameters out of range are named with their range") {
  SamplingParams params;
  CHECK(params.problem().empty());
  const auto problem = [](auto change) {
    SamplingParams bad;
    change(bad);
    CHECK_THROWS_AS(Sampler(bad), std::invalid_argument);
    return bad.problem();
  };
  CHECK_THAT(problem([](SamplingParams& p) { p.temperature = -1.0f; }), Contains("temperature is -1, expected 0"));
  CHECK_THAT(problem([](SamplingParams& p) { p.temperature = kNaN; }), Contains("temperature is nan"));
  CHECK_THAT(problem([](SamplingParams& p) { p.top_k = -1; }), Contains("top_k is -1"));
  CHECK_THAT(problem([](SamplingParams& p) { p.top_p = 0.0f; }), Contains("top_p is 0, expected more than 0"));
  CHECK_THAT(problem([](SamplingParams& p) { p.top_p = 1.1f; }), Contains("top_p is 1.1"));
  CHECK_THAT(problem([](SamplingParams& p) { p.min_p = -0.1f; }), Contains("min_p is -0.1"));
  CHECK_THAT(problem([](SamplingParams& p) { p.repetition_penalty = 0.0f; }), Contains("repetition_penalty is 0"));
}

TEST_CASE("entropy of what a token is drawn from", "[sampler]") {
  CHECK(entropy_of(std::vector<float>(8, 1.5f)) == Approx(std::log(8.0)));
  CHECK(entropy_of(std::vector<float>{0, -100, -100}) == 0.0f);
  CHECK(entropy_of(std::vector<float>{std::log(3.0f), 0}) == Approx(-0.75 * std::log(0.75) - 0.25 * std::log(0.25)));
  CHECK(entropy_of(std::vector<float>{1, NAN, 1, -INFINITY}) == Approx(std::log(2.0)));
  CHECK(entropy_of(std::vector<float>{NAN, -INFINITY}) == 0.0f);
  CHECK(entropy_of({}) == 0.0f);
}

TEST_CASE("only allowed tokens are chosen, and the filters see no others") {
  constexpr std::size_t kSize = 70;  // a last word that is not full
  std::vector<float> logits(kSize);
  for (std::size_t i = 0; i < kSize; ++i) logits[i] = static_cast<float>(i % 7) - 3.0f;
  logits[10] = 9.0f;  // the likeliest, and not allowed
  logits[40] = 2.5f;
  const std::vector<TokenId> allowed_ids{3, 40, 68};
  std::vector<std::uint32_t> allowed(3, 0);
  for (const TokenId id : allowed_ids) allowed[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
  std::vector<float> scratch;
  const auto choose = [&](SamplingParams params, std::span<const TokenId> seen) {
    return Sampler(params).choose(logits, {seen, {}}, allowed, scratch).id;
  };
  CHECK(choose({}, {}) == 40);
  CHECK(choose({.temperature = 1.0f, .top_k = 1}, {}) == 40);  // of the allowed
  CHECK(choose({.temperature = 1.0f, .top_p = 0.01f}, {}) == 40);
  const std::vector<TokenId> seen{40, 10};
  CHECK(choose({.repetition_penalty = 2.0f}, seen) == 68);  // 2.5 / 2 is less than its 2
  std::set<TokenId> drawn;
  for (std::uint64_t seed = 0; seed < 300; ++seed) drawn.insert(choose({.temperature = 5.0f, .seed = seed}, {}));
  CHECK(drawn == std::set<TokenId>(allowed_ids.begin(), allowed_ids.end()));
  allowed.assign(3, 0);
  CHECK(choose({}, {}) == -1);
  allowed.assign(3, ~0u);
  CHECK(choose({}, {}) == 10);
  allowed.clear();
  CHECK(choose({}, {}) == 10);
}

TEST_CASE("the greedy choice among allowed tokens is the first of the highest finite ones") {
  std::mt19937 random(3);
  std::vector<float> scratch;
  int none = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::size_t size = 1 + random() % 200;
    std::vector<float> logits(size);
    for (float& logit : logits) logit = static_cast<float>(random() % 9) - 4.0f;  // many are equal
    for (int i = 0; i < 5; ++i) logits[random() % size] = std::array{NAN, INFINITY, -INFINITY}[random() % 3];
    std::vector<std::uint32_t> allowed(size / 32 + 1);
    for (std::uint32_t& word : allowed)
      word = std::array<std::uint32_t, 4>{0, ~0u, random(), random() & random()}[random() % 4];
    TokenId expected = -1;
    for (std::size_t id = 0; id < size; ++id) {
      if ((allowed[id / 32] >> (id % 32) & 1u) == 0 || !std::isfinite(logits[id])) continue;
      if (expected < 0 || logits[id] > logits[static_cast<std::size_t>(expected)]) expected = static_cast<TokenId>(id);
    }
    none += expected < 0 ? 1 : 0;
    CHECK(Sampler({}).choose(logits, {}, allowed, scratch).id == expected);
  }
  CHECK(none > 50);
}

}  // namespace sampler_test
