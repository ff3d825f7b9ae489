// SPDX-License-Identifier: Apache-2.0
// Speculation without a model: which draft is found, and how much of it is worth running.
#include "engine/loop/speculation.h"

#include <catch2/catch.hpp>
#include <numeric>

namespace speculation_test {

using namespace baton;

namespace {

std::vector<TokenId> numbers(std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), TokenId{1});
  return tokens;
}

}  // namespace

TEST_CASE("A draft is what followed the longest earlier match", "[speculation]") {
  const std::vector<TokenId> tokens{1, 2, 3, 9, 2, 3, 5, 1, 2, 3};
  const Draft draft = find_draft(tokens, 4);
  CHECK(draft.match == 3);
  CHECK(std::vector<TokenId>(draft.tokens.begin(), draft.tokens.end()) == std::vector<TokenId>{9, 2, 3, 5});
  CHECK(find_draft(tokens, 1).tokens.size() == 1);
  CHECK(find_draft(tokens, 0).tokens.empty());
}

TEST_CASE("Of equal matches the latest is taken, and it may overlap the end", "[speculation]") {
  const std::vector<TokenId> twice{1, 2, 7, 1, 2, 8, 1, 2};
  CHECK(find_draft(twice, 1).tokens[0] == 8);
  const std::vector<TokenId> same(6, 4);
  CHECK(find_draft(same, 3).match == 5);
  CHECK(find_draft(same, 3).tokens.size() == 1);
}

TEST_CASE("Nothing is drafted after new tokens", "[speculation]") {
  const std::vector<TokenId> tokens{1, 2, 3, 4, 5};
  CHECK(find_draft(tokens, 4).tokens.empty());
  CHECK(find_draft({}, 4).tokens.empty());
  const std::vector<TokenId> one{1, 2, 1};  // a match of one token says too little
  CHECK(find_draft(one, 4).tokens.empty());
  const std::vector<TokenId> late{5, 1, 2, 9, 3, 1};
  CHECK(find_draft(late, 4).tokens.empty());
}

TEST_CASE("A draft runs as far as its tokens are worth their time", "[speculation]") {
  const std::vector<TokenId> tokens = numbers(8);
  DraftLength lengths(12);
  DraftLength::Step step{1, 1.0};
  CHECK(lengths.choose({tokens, 8}, 0.1, step) == 0);  // no step has been measured
  lengths.on_step(1, 10.0);
  for (int i = 0; i < 200; ++i) lengths.on_choice(8, true);
  for (int i = 0; i < 200; ++i) lengths.on_choice(12, true);
  CHECK(lengths.choose({tokens, 8}, 0.1, step) == 8);
  CHECK(step.rows == 9);
  CHECK(step.tokens == Approx(9.0).margin(0.1));
  step = {1, 1.0};
  CHECK(lengths.choose({tokens, 8}, 20.0, step) == 0);  // a row takes as long as a step
  for (int i = 0; i < 200; ++i) lengths.on_choice(8, false);
  CHECK(lengths.choose({tokens, 8}, 0.1, step) == 0);
  CHECK(step.rows == 1);
}

TEST_CASE("Drafts never exceed the rows of a step", "[speculation]") {
  const std::vector<TokenId> tokens = numbers(11);
  DraftLength lengths(6);
  lengths.on_step(1, 10.0);
  for (int i = 0; i < 200; ++i) lengths.on_choice(32, true);
  DraftLength::Step step{2, 2.0};
  CHECK(lengths.choose({tokens, 32}, 0.01, step) == 4);
  CHECK(lengths.choose({tokens, 32}, 0.01, step) == 0);
}

TEST_CASE("What a slow step took moves the measure of its rows by little", "[speculation]") {
  const std::vector<TokenId> tokens = numbers(1);
  DraftLength lengths(4);
  for (int i = 0; i < 300; ++i) lengths.on_choice(2, true);  // a drafted token is right
  lengths.on_step(1, 10.0);
  lengths.on_step(2, 16.0);
  DraftLength::Step step{1, 1.0};
  CHECK(lengths.choose({tokens, 2}, 1.0, step) == 1);  // 2 tokens in 16 ms, 1 in 10 ms
  lengths.on_step(2, 1000.0);                          // counts as 32 ms at most, and as a fifth of the mean: 19.2 ms
  step = {1, 1.0};
  CHECK(lengths.choose({tokens, 2}, 1.0, step) == 1);
  for (int i = 0; i < 10; ++i) lengths.on_step(2, 1000.0);
  step = {1, 1.0};
  CHECK(lengths.choose({tokens, 2}, 1.0, step) == 0);
}

TEST_CASE("A forced answer is its own draft, as far as there is room", "[speculation]") {
  const std::vector<TokenId> forced = numbers(10);
  const Speculation none;
  const DraftSource source{.forced = forced, .written = 4, .max_tokens = 8};
  const Draft draft = none.find(source, 6);
  CHECK(draft.match == 0);
  CHECK(std::vector<TokenId>(draft.tokens.begin(), draft.tokens.end()) == std::vector<TokenId>{5, 6, 7, 8});
  CHECK(none.find(source, 2).tokens.size() == 2);
  CHECK(none.find({.forced = forced, .written = 0, .max_tokens = 8}, 6).tokens.empty());
  CHECK(none.find({.forced = forced, .written = 9, .max_tokens = 99}, 6).tokens.size() == 1);
}

TEST_CASE("Nothing is drafted that would leave traces", "[speculation]") {
  const std::vector<TokenId> tokens{1, 2, 3, 9, 2, 3, 5, 1, 2, 3};
  const Speculation none;
  CHECK(none.find({.tokens = tokens, .written = 1, .max_tokens = 9}, 4).tokens.size() == 4);
  CHECK(none.find({.tokens = tokens, .written = 1, .max_tokens = 4}, 4).tokens.size() == 2);  // one token comes anyway
  CHECK(none.find({.tokens = tokens, .written = 1, .max_tokens = 9, .summed = true}, 4).tokens.empty());
  CHECK(none.find({.forced = tokens, .written = 1, .max_tokens = 9, .summed = true}, 4).tokens.size() == 4);
  CHECK(none.find({.forced = tokens, .written = 1, .max_tokens = 9, .summed = true, .stops = true}, 4).tokens.empty());
}

TEST_CASE("Chosen tokens follow the draft until one differs", "[speculation]") {
  DraftLength drafts(8);
  const std::vector<TokenId> tokens{5, 6, 7};
  Speculation sequence;
  sequence.set_draft({tokens, 2}, 3);
  CHECK(sequence.is_guess());
  CHECK(sequence.match_token(5, false, drafts) == Speculation::Chosen::guessed);
  CHECK(sequence.match_token(6, false, drafts) == Speculation::Chosen::guessed);
  CHECK(sequence.match_token(9, false, drafts) == Speculation::Chosen::other);
  sequence.set_draft({tokens, 0}, 3);
  CHECK(!sequence.is_guess());
  CHECK(sequence.match_token(5, false, drafts) == Speculation::Chosen::certain);
  CHECK(sequence.match_token(6, true, drafts) == Speculation::Chosen::other);  // the answer is over
  sequence.set_draft({tokens, 2}, 1);
  CHECK(sequence.draft().size() == 1);
  CHECK(sequence.match_token(5, false, drafts) == Speculation::Chosen::guessed);
  CHECK(sequence.match_token(6, false, drafts) == Speculation::Chosen::other);  // it did not run
}

TEST_CASE("A draft that did not run says how often drafts are right, too", "[speculation]") {
  const std::vector<TokenId> tokens{5, 6, 7};
  const auto worth = [&](TokenId chosen) {
    DraftLength drafts(8);
    drafts.on_step(1, 10.0);
    for (int i = 0; i < 200; ++i) {
      Speculation sequence;
      sequence.set_draft({tokens, 2}, 0);
      CHECK(sequence.match_token(chosen, false, drafts) == Speculation::Chosen::other);
    }
    DraftLength::Step step{1, 1.0};
    return drafts.choose({std::span(tokens).first(1), 2}, 1.0, step);
  };
  CHECK(worth(5) == 1);
  CHECK(worth(9) == 0);
}

TEST_CASE("A tentative answer stays up to the first token that differs", "[speculation]") {
  Speculation sequence;
  sequence.be_tentative();
  CHECK(sequence.is_tentative());
  sequence.begin_check({1, 2, 3});
  CHECK(!sequence.is_tentative());
  CHECK(sequence.is_checking());
  const std::vector<TokenId> answer{1, 2, 9};
  CHECK(!sequence.compare(std::span(answer).first(1), false));
  CHECK(!sequence.compare(std::span(answer).first(2), false));
  CHECK(sequence.compare(answer, false) == 2);
  CHECK(!sequence.is_checking());
  CHECK(!sequence.compare(answer, false));  // that is decided
}

TEST_CASE("The check is over with the last tentative token, or with the answer", "[speculation]") {
  const std::vector<TokenId> answer{1, 2, 3};
  Speculation all, shorter;
  all.begin_check({1, 2, 3});
  CHECK(all.compare(answer, false) == 3);
  shorter.begin_check({1, 2, 3, 4, 5});
  CHECK(!shorter.compare(answer, false));
  CHECK(shorter.compare(answer, true) == 3);
}

TEST_CASE("The draft of a check is what was written tentatively", "[speculation]") {
  Speculation sequence;
  sequence.begin_check({1, 2, 3, 4});
  const Draft draft = sequence.find({.written = 1, .max_tokens = 9}, 8);
  CHECK(std::vector<TokenId>(draft.tokens.begin(), draft.tokens.end()) == std::vector<TokenId>{2, 3, 4});
  CHECK(draft.match == 0);
}

TEST_CASE("The tokens of a choice that is scored follow one another", "[speculation]") {
  const std::vector<TokenId> tokens{5, 6};
  Speculation sequence;
  sequence.set_draft({tokens, 0}, 2);
  CHECK(sequence.match_scored());
  CHECK(sequence.match_scored());
  CHECK(!sequence.match_scored());
}

}  // namespace speculation_test
