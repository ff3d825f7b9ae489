// SPDX-License-Identifier: Apache-2.0
// Which token plays the part of which: alignments of sketched texts, and what anchors make of them.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "engine/reuse/anchors/anchor_choice.h"
#include "tests/support/tiny_model.h"

namespace alignment_test {

using namespace baton;

namespace {

/// Token i sits at place i * step of a line: tokens a and b are min(1, |a - b| * step) apart.
SharedText text_of(std::vector<TokenId> tokens, float step = 0.25f) {
  auto text = std::make_shared<SketchedText>();
  for (const TokenId id : tokens) {
    text->sketch.push_back(static_cast<float>(id) * step);
    text->sketch.resize(text->sketch.size() + SketchedText::kSketch - 1, 0.0f);
  }
  text->hash = hash_of(tokens);
  text->tokens = std::move(tokens);
  return text;
}

SharedAnchor anchor_of(SharedText text, std::vector<SharedText> before = {}) {
  auto anchor = std::make_shared<Anchor>();
  anchor->shape = KvWidth{{1}};
  anchor->length = static_cast<std::int32_t>(text->size());
  anchor->text = std::move(text);
  anchor->before = std::move(before);
  return anchor;
}

AnchorPoolView pool_of(std::vector<SharedAnchor> anchors, float error = 0.05f) {
  AnchorPoolView pool;
  pool.anchors = std::move(anchors);
  for (int i = 0; i < 10; ++i) pool.records.push_back({0.1f * static_cast<float>(i), error, 0.4f});
  return pool;
}

/// The least cost by trying everything.
float least_cost(const SketchedText& a, const SketchedText& b) {
  const auto n = static_cast<std::size_t>(a.size()), m = static_cast<std::size_t>(b.size());
  std::vector<std::vector<float>> cost(n + 1, std::vector<float>(m + 1, 0.0f));
  for (std::size_t i = 0; i <= n; ++i) {
    for (std::size_t j = 0; j <= m; ++j) {
      if (i == 0) {
        cost[i][j] = static_cast<float>(j);
        continue;
      }
      cost[i][j] = cost[i - 1][j] + 1;
      if (j == 0) continue;
      const float replaced =
          token_distance(&a.sketch[(i - 1) * SketchedText::kSketch], &b.sketch[(j - 1) * SketchedText::kSketch]);
      cost[i][j] = std::min({cost[i][j], cost[i - 1][j - 1] + replaced, cost[i][j - 1] + 1});
    }
  }
  return *std::min_element(cost[n].begin(), cost[n].end()) / static_cast<float>(n);
}

}  // namespace

TEST_CASE("alignment: equal texts, a replaced token, one added, one left out", "[anchors]") {
  const SharedText text = text_of({10, 20, 30, 40});
  const Alignment same = align(*text, *text_of({10, 20, 30, 40, 50}));
  CHECK(same.distance == 0.0f);
  CHECK(same.to == std::vector<std::int32_t>{0, 1, 2, 3});
  const Alignment replaced = align(*text, *text_of({10, 22, 30, 40}));  // 20 and 22 are half apart
  CHECK(replaced.distance == 0.125f);
  CHECK(replaced.mismatch == std::vector<float>{0, 0.5f, 0, 0});
  const Alignment added = align(*text, *text_of({10, 30, 40}));
  CHECK(added.distance == 0.25f);
  CHECK(added.to == std::vector<std::int32_t>{0, 0, 1, 2});
  const Alignment left_out = align(*text, *text_of({10, 90, 20, 30, 40}));
  CHECK(left_out.distance == 0.25f);
  CHECK(left_out.to == std::vector<std::int32_t>{0, 2, 3, 4});
  CHECK(align(*text_of({}), *text).distance == 0.0f);
  CHECK(align(*text, *text_of({})).distance == 1.0f);
}

TEST_CASE("alignment: the least cost of random texts, token by token as at once", "[anchors]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto tokens = [&](std::uint64_t which) {
      std::vector<TokenId> ids = baton::test::random_tokens(1 + (seed * 7 + which * 5) % 40, seed * 2 + which);
      for (TokenId& id : ids) id %= 12;
      return ids;
    };
    const SharedText a = text_of(tokens(0)), b = text_of(tokens(1));
    const Alignment alignment = align(*a, *b);
    INFO("seed " << seed);
    CHECK(alignment.distance == Approx(least_cost(*a, *b)).margin(1e-5));
    const float sum = std::accumulate(alignment.mismatch.begin(), alignment.mismatch.end(), 0.0f);
    CHECK(sum <= alignment.distance * static_cast<float>(a->size()) + 1e-4f);  // the rest was left out of b
    CHECK(std::is_sorted(alignment.to.begin(), alignment.to.end()));
  }
}

TEST_CASE("alignment: long texts of one beginning need no band wider than they have", "[anchors]") {
  std::vector<TokenId> ids(1500);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<TokenId> shifted(ids.begin() + 100, ids.end());
  const Alignment alignment = align(*text_of(shifted, 1.0f), *text_of(ids, 1.0f));
  CHECK(alignment.to.front() == 100);
  CHECK(alignment.to.back() == 1499);
  CHECK(align(*text_of(ids, 1.0f), *text_of({1, 2, 3}, 1.0f)).to.back() == 2);  // far outside of the band
}

TEST_CASE("alignment: the memo of an engine that lives long stays small, however texts are aligned", "[anchors]") {
  constexpr std::size_t kTokens = 4096;
  std::vector<TokenId> ids(kTokens);
  std::iota(ids.begin(), ids.end(), 0);
  const SharedText other = text_of(ids);
  AlignmentMemo memo;
  std::size_t most = 0;
  for (std::uint64_t i = 1; i <= AlignmentMemo::kMaxTokens / kTokens + 20; ++i) {
    auto text = std::make_shared<SketchedText>(*other);
    text->hash = i;
    const auto alignment = memo.find(text, other, false);
    CHECK(memo.find(text, other, false) == alignment);
    most = std::max(most, memo.tokens());
  }
  CHECK(most > AlignmentMemo::kMaxTokens / 2);
  CHECK(most <= AlignmentMemo::kMaxTokens + kTokens + 1);
  CHECK(memo.tokens() < most);  // it was cleared

  const SharedText empty = text_of({});
  const std::size_t before = memo.tokens();
  memo.find(empty, other, true);
  CHECK(memo.tokens() == before + 1);  // pairs of empty texts take memory, too
}

TEST_CASE("anchors: the first texts are learned, a text seen in its place is exact", "[anchors]") {
  AlignmentMemo memo;
  AnchorOptions options;
  options.size = 4;
  const SharedText text = text_of({1, 2, 3, 4}), other = text_of({40, 50, 60, 70}), before = text_of({9}),
                   elsewhere = text_of({99});
  CHECK(choose_anchors(options, {}, text, {}, memo).kind == AnchorChoice::Kind::learn);
  const AnchorPoolView pool = pool_of({anchor_of(text, {before}), anchor_of(other, {before})});
  const AnchorChoice exact = choose_anchors(options, pool, text, {&before, 1}, memo);
  CHECK(exact.kind == AnchorChoice::Kind::hit);
  CHECK(exact.anchors == std::vector<SharedAnchor>{pool.anchors[0]});
  CHECK(exact.weights == std::vector<float>{1.0f});
  CHECK(exact.error == 0.0f);
  const AnchorChoice moved = choose_anchors(options, pool, text, {&elsewhere, 1}, memo);  // other words before it
  CHECK(moved.distance > 0.0f);
}

TEST_CASE("anchors: weights sum to one and favour what is alike, in the text and before it", "[anchors]") {
  AlignmentMemo memo;
  AnchorOptions options;
  options.gate = AnchorOptions::Gate::none;
  const SharedText before = text_of({1, 1, 1}), far = text_of({50, 50, 50});
  const SharedText text = text_of({10, 20, 30, 40});
  const std::vector<SharedAnchor> anchors = {anchor_of(text_of({10, 21, 30, 40}), {before}),
                                             anchor_of(text_of({10, 23, 31, 40}), {before}),
                                             anchor_of(text_of({10, 21, 30, 40}), {far})};
  const AnchorChoice choice = choose_anchors(options, pool_of(anchors), text, {&before, 1}, memo);
  CHECK(choice.kind == AnchorChoice::Kind::hit);
  CHECK(std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0f) == Approx(1.0f));
  REQUIRE(choice.weights.size() == 3);
  CHECK(choice.weights[0] > choice.weights[1]);
  CHECK(choice.weights[0] > choice.weights[2]);
  CHECK(choice.ambiguity > 0.0f);
  CHECK(choice.ambiguity < 1.0f);
  CHECK(choice.mismatch(4)[1] > 0.0f);
  CHECK(choice.mismatch(4)[0] == 0.0f);
  options.offsets = AnchorOptions::Offsets::nearest;
  const AnchorChoice nearest = choose_anchors(options, pool_of(anchors), text, {&before, 1}, memo);
  CHECK(nearest.anchors == std::vector<SharedAnchor>{anchors[0]});
  CHECK(nearest.ambiguity == 0.0f);
}

TEST_CASE("anchors: the gates", "[anchors]") {
  AlignmentMemo memo;
  AnchorOptions options;
  options.size = 2;
  const SharedText text = text_of({10, 20, 30, 40});
  const std::vector<SharedAnchor> anchors = {anchor_of(text_of({10, 21, 30, 40, 50})),
                                             anchor_of(text_of({10, 20, 31, 40, 50}))};
  const auto kind = [&](float error) { return choose_anchors(options, pool_of(anchors, error), text, {}, memo).kind; };
  using Kind = AnchorChoice::Kind;
  CHECK(kind(0.05f) == Kind::hit);
  CHECK(kind(0.12f) == Kind::refine);
  CHECK(kind(0.3f) == Kind::refuse);
  const SharedText strange = text_of({200, 300, 400, 500});
  AnchorPoolView near = pool_of(anchors);
  near.records = {{0.1f, 0.05f, 0.4f}};
  CHECK(choose_anchors(options, near, strange, {}, memo).kind == Kind::learn);  // unlike all anchors
  near.records.clear();
  CHECK(choose_anchors(options, near, text, {}, memo).kind == Kind::learn);  // nothing is known of the error
  options.size = 5;                                                          // filling: every second text is learned
  AnchorPoolView filling = pool_of({anchors[0], anchors[1], anchor_of(strange)});
  CHECK(choose_anchors(options, filling, text, {}, memo).kind == Kind::hit);
  filling.since_learning = 1;
  CHECK(choose_anchors(options, filling, text, {}, memo).kind == Kind::learn);

  options.gate = AnchorOptions::Gate::entropy;
  options.gamma = 0.3f;
  CHECK(choose_anchors(options, pool_of(anchors), text, {}, memo).kind == Kind::learn);  // two are equally near
  CHECK(choose_anchors(options, pool_of({anchors[0], anchor_of(strange)}), text, {}, memo).kind == Kind::hit);
  CHECK(choose_anchors(options, pool_of({anchor_of(strange)}), text, {}, memo).kind == Kind::learn);  // one, and far
  options.aligned = false;  // the paper's length rule
  const SharedText longer = text_of({10, 20, 30, 40, 50, 60});
  CHECK(choose_anchors(options, pool_of(anchors), longer, {}, memo).kind == Kind::learn);
}

}  // namespace alignment_test
