// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "engine/remote/remote_engine.h"

namespace warm_ups_test {

using namespace baton;
using namespace std::chrono_literals;

namespace {

EarlyPrompt following(std::size_t fixed, RequestId author) {
  EarlyPrompt prompt;
  prompt.parts.push_back({std::vector<TokenId>(fixed, 1), 0, false, ""});
  if (author != 0) prompt.parts.push_back({{}, author, false, "slot"});
  prompt.parts.push_back({{9, 9, 9}, 0, false, ""});
  return prompt;
}

}  // namespace

TEST_CASE("a prompt is sent ahead when a block of it is new, and not while it is under way") {
  WarmUps warm_ups(4, 3);
  warm_ups.add(1, following(3, 7));
  CHECK(warm_ups.next() == std::nullopt);
  warm_ups.decoded(7, {5});
  REQUIRE(warm_ups.next() == EarlyId{1});
  CHECK_FALSE(warm_ups.has_slot(1));
  CHECK(warm_ups.choose_slot(1, {2}));
  const auto sent = warm_ups.send(1);
  CHECK(sent->prompt == std::vector<TokenId>{1, 1, 1, 5});
  CHECK(sent->slot == 2);
  warm_ups.decoded(7, {5, 6, 7, 8, 5});
  CHECK(warm_ups.next() == std::nullopt);
  warm_ups.arrived(1, 2, 2, 20.0);
  REQUIRE(warm_ups.next() == EarlyId{1});
  CHECK(warm_ups.send(1)->prompt == std::vector<TokenId>{1, 1, 1, 5, 6, 7, 8, 5});
  warm_ups.arrived(1, 4, 2, 20.0);
  const WarmUps::Warmth warmth = warm_ups.take(1);
  CHECK(warmth.slot == 2);
  CHECK(warmth.before == 2);  // what was there before the first
  CHECK(warm_ups.next() == std::nullopt);
}

TEST_CASE("what a server had before is told by all pieces of a prompt, and not by its first one alone") {
  const auto before = [](std::vector<std::int64_t> cached) {
    WarmUps warm_ups(16, 3);
    warm_ups.add(1, following(1000, 0));
    for (const std::int64_t count : cached) {
      REQUIRE(warm_ups.send(1));
      warm_ups.arrived(1, count, 0, 1.0);
    }
    return warm_ups.take(1).before;
  };
  CHECK(before({0, 64, 192}) == 0);      // nothing: the counts are those of our own requests
  CHECK(before({48, 176, 440}) == 440);  // the beginning, in blocks of 16
  CHECK(before({63, 100, 192}) == 100);
  CHECK(before({-1, -1}) == 0);
}

TEST_CASE("a piece takes as long as its new tokens where a server does not tell what it had") {
  WarmUps warm_ups(16, 3);
  warm_ups.add(1, following(1000, 0));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(warm_ups.send(1));
    warm_ups.arrived(1, -1, 0, 600.0);
  }
  CHECK(warm_ups.send(1)->prompt.size() == 4 * 64);
}

TEST_CASE("one slot stays free of waiting prompts, and a prompt with a slot goes first") {
  WarmUps warm_ups(4, 3);
  for (const EarlyId id : {1u, 2u, 3u}) warm_ups.add(id, following(8, 0));
  CHECK(warm_ups.choose_slot(2, {0, 1, 2}));
  CHECK(warm_ups.next() == EarlyId{2});
  CHECK_FALSE(warm_ups.choose_slot(1, {0}));  // it is the second prompt's
  CHECK(warm_ups.choose_slot(1, {0, 2}));
  CHECK_FALSE(warm_ups.choose_slot(3, {0, 1, 2}));
  warm_ups.take(1);
  CHECK(warm_ups.choose_slot(3, {0, 1, 2}));
}

TEST_CASE("a long prompt is sent in pieces that take the server a short time each") {
  WarmUps warm_ups(16, 3);
  warm_ups.add(1, following(1000, 0));
  CHECK(warm_ups.choose_slot(1, {0}));
  CHECK(warm_ups.send(1)->prompt.size() == 64);
  warm_ups.arrived(1, 0, 0, 400.0);
  REQUIRE(warm_ups.next() == EarlyId{1});
  CHECK(warm_ups.send(1)->prompt.size() == 64 + 96);  // 64 tokens took 400 ms, so that 96 take 600
  warm_ups.arrived(1, 64, 0, 1.0);
  CHECK(warm_ups.send(1)->prompt.size() == 160 + 192);  // at most twice as many as before
  warm_ups.arrived(1, 160, 0, 10000.0);
  CHECK(warm_ups.send(1)->prompt.size() == 352 + 96);
  for (int i = 0; i < 20; ++i) {
    warm_ups.arrived(1, 352, 0, 1e9);
    REQUIRE(warm_ups.send(1));
  }
  warm_ups.arrived(1, 352, 0, 1e9);
  const std::size_t before = warm_ups.send(1)->prompt.size();
  warm_ups.arrived(1, 352, 0, 1e9);
  CHECK(warm_ups.send(1)->prompt.size() <= before + 16);
  CHECK(warm_ups.send(1)->prompt.size() <= 1003);
}

TEST_CASE("one prompt is sent at a time, the first before the others, and of a slow server's in larger pieces") {
  WarmUps warm_ups(16, 4);
  for (const EarlyId id : {1u, 2u}) {
    warm_ups.add(id, following(80, 7));
    CHECK(warm_ups.choose_slot(id, {0, 1}));
  }
  CHECK(warm_ups.send(1)->prompt.size() == 64);
  CHECK(warm_ups.next() == std::nullopt);
  warm_ups.arrived(1, 0, 0, 400.0);  // so that 96 take 600 ms, and are worth a request; of the second prompt 192
  CHECK(warm_ups.next() == std::nullopt);
  std::vector<TokenId> answer(81, 5);
  warm_ups.decoded(7, answer);
  REQUIRE(warm_ups.next() == EarlyId{1});  // 97 are new
  CHECK(warm_ups.send(1)->prompt.size() == 160);
  warm_ups.arrived(1, 64, 0, 600.0);
  CHECK(warm_ups.next() == std::nullopt);  // one of the first, 161 of the second
  answer.resize(112, 5);
  warm_ups.decoded(7, answer);
  REQUIRE(warm_ups.next() == EarlyId{2});
  CHECK(warm_ups.send(2)->prompt.size() == 96);
}

TEST_CASE("prompts are held back while decoding is slower than the bound allows") {
  DecodePace pace(0.5);
  CHECK(pace.may_send());  // nothing is decoded
  Clock::time_point now{};
  const auto token = [&](std::chrono::milliseconds after) { pace.token(1, now += after); };
  token(0ms);
  CHECK_FALSE(pace.may_send());  // the pace is not known
  token(10ms);
  token(10ms);
  CHECK(pace.may_send());
  pace.sent();
  token(60ms);  // 50 ms are lost
  pace.answered();
  CHECK_FALSE(pace.may_send());
  int tokens = 0;
  for (; !pace.may_send() && tokens < 100; ++tokens) token(10ms);
  CHECK(tokens >= 5);
  CHECK(tokens <= 10);  // each allows 5 ms
  pace.ended(1);
  CHECK(pace.may_send());
}

}  // namespace warm_ups_test
