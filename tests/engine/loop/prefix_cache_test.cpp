// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/kv_lookup.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "engine/cpu/cpu.h"

namespace prefix_cache_test {

using namespace baton;

namespace {

const KvLayout kLayout{.shapes = std::vector<KvShape>(2, {1, 8, DType::f32}), .raw_keys = true};
constexpr std::int64_t kTokenBytes = 2 * 2 * 8 * 4 + 4;  // keys, values of two layers; the id

/// A cache whose keys and values at position i say the token and the position.
KvCache cache_of(Backend& backend, const std::vector<TokenId>& tokens) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  KvCache cache(backend, kLayout, n);
  std::vector<float> values;
  std::vector<std::int32_t> position, zero(tokens.size(), 0);
  for (std::int32_t i = 0; i < n; ++i) {
    position.push_back(i);
    values.insert(values.end(), 8, static_cast<float>(1000 * i + tokens[static_cast<std::size_t>(i)]));
  }
  const ConstTensorView all = view_of(values.data(), n, 8), none = view_of(values.data(), n, 0);
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    const KvSlab slab = cache.slab(layer);
    backend.kv().store_kv({&slab, 1}, kLayout.shape(layer), {zero, position, zero}, all, all, {none, none});
  }
  cache.commit(n);
  return cache;
}

/// The match covers [0, length) without gaps and holds the KV of exactly these tokens.
void check(const PrefixCache::Match& match, const std::vector<TokenId>& prompt) {
  std::int32_t at = 0;
  for (const PrefixCache::Piece& piece : match.pieces) {
    CHECK(piece.begin == at);
    for (std::int32_t i = 0; i < piece.count; ++i, ++at) {
      const auto expected = static_cast<float>(1000 * at + prompt[static_cast<std::size_t>(at)]);
      CHECK(piece.segment->raw_keys(1).f32()[i * 8] == expected);
      CHECK(piece.segment->values(0).f32()[i * 8 + 7] == expected);
    }
  }
  CHECK(at == match.length);
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<TokenId> text(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 900);
  return tokens;
}

}  // namespace

TEST_CASE("prefix cache: what prompts share is stored once", "[engine][prefix]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(1 << 24);
  PrefixCache cache(store);
  const auto role = text(100, 1);
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto prompt = role + text(30, 10 + i);
    cache.add(*backend, cache_of(*backend, prompt), prompt);
  }
  CHECK(store.stats().bytes == (100 + 10 * 30) * kTokenBytes);
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto prompt = role + text(30, 10 + i) + text(5, 3);
    const auto match = cache.find(prompt, 135);
    CHECK(match.length == 130);
    check(match, prompt);
  }
  const auto other = role + text(30, 99);
  check(cache.find(other, 130), other);
  CHECK(cache.find(other, 130).length == 100);
  CHECK(cache.find(other, 40).length == 40);
  check(cache.find(other, 40), other);
  CHECK(cache.find(other, 0).pieces.empty());
  CHECK(cache.find(text(50, 50), 50).length == 0);
  cache.clear();
  CHECK(store.stats().bytes == 0);
}

TEST_CASE("prefix cache: little more than there is, is not kept, a longer prompt goes on", "[engine][prefix]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(1 << 24);
  PrefixCache cache(store);
  auto prompt = text(50, 1);
  cache.add(*backend, cache_of(*backend, prompt), prompt);
  cache.add(*backend, cache_of(*backend, prompt), prompt);
  prompt = prompt + text(10, 2);
  cache.add(*backend, cache_of(*backend, prompt), prompt);
  CHECK(store.stats().segments == 1);
  prompt = prompt + text(10, 3);
  cache.add(*backend, cache_of(*backend, prompt), prompt);
  CHECK(store.stats().bytes == 70 * kTokenBytes);
  CHECK(cache.find(prompt, 70).length == 70);
  check(cache.find(prompt, 70), prompt);
}

TEST_CASE("prefix cache: over the budget, what others stand on goes last", "[engine][prefix]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(200 * kTokenBytes);
  PrefixCache cache(store);
  const auto role = text(100, 1);
  for (std::uint64_t i = 0; i < 8; ++i) {  // room for the role and three questions
    const auto prompt = role + text(30, 10 + i);
    cache.add(*backend, cache_of(*backend, prompt), prompt);
    CHECK(cache.find(prompt, 130).length >= 100);
  }
  CHECK(store.stats().bytes <= 200 * kTokenBytes);
  CHECK(store.stats().bytes > 150 * kTokenBytes);
  CHECK(cache.find(role, 100).length == 100);
}

TEST_CASE("prefix cache: random prompts of a few texts, against the longest common prefix", "[engine][prefix]") {
  const auto backend = make_cpu_backend(1);
  for (const std::int64_t budget : {std::int64_t{1} << 24, 400 * kTokenBytes}) {
    SegmentStore store(budget);
    PrefixCache cache(store);
    std::mt19937_64 random(7);
    std::vector<std::vector<TokenId>> added;
    for (int i = 0; i < 300; ++i) {
      std::vector<TokenId> prompt;
      for (std::uint64_t parts = 1 + random() % 4; parts > 0; --parts)
        prompt = prompt + text(5 + random() % 40, random() % 3);
      prompt.resize(1 + random() % prompt.size());
      const auto longest = static_cast<std::int32_t>(random() % (prompt.size() + 1));
      const auto match = cache.find(prompt, longest);
      check(match, prompt);
      std::int32_t best = 0;
      for (const auto& other : added) {
        const auto n = static_cast<std::ptrdiff_t>(std::min(other.size(), prompt.size()));
        best =
            std::max(best, static_cast<std::int32_t>(
                               std::mismatch(other.begin(), other.begin() + n, prompt.begin()).first - other.begin()));
      }
      CHECK(match.length <= std::min(best, longest));
      // With room for all, only the tail that was not worth keeping is missing.
      if (budget > 1 << 20 && added.size() < 60) CHECK(match.length + 15 >= std::min(best, longest));
      cache.add(*backend, cache_of(*backend, prompt), prompt);
      added.push_back(prompt);
      CHECK(store.stats().bytes <= budget);
    }
  }
}

TEST_CASE("prefix cache: it has at most 512 entries, the most recently used ones", "[engine][prefix]") {
  const auto backend = make_cpu_backend(1);
  SegmentStore store(1 << 24);
  PrefixCache cache(store);
  for (std::uint64_t i = 0; i < 600; ++i) {
    const auto prompt = text(20, 1000 + i);
    cache.add(*backend, cache_of(*backend, prompt), prompt);
    CHECK(store.stats().segments == static_cast<std::int64_t>(std::min<std::uint64_t>(i + 1, 512)));
  }
  for (std::uint64_t i = 500; i < 600; ++i) CHECK(cache.find(text(20, 1000 + i), 20).length == 20);
}

}  // namespace prefix_cache_test
