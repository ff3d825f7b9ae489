// SPDX-License-Identifier: Apache-2.0
// Texts compared on every backend: the same alignments as on the host, whole numbers deciding.
#include "engine/backend/host_operations.h"

#include "tests/engine/ops/fixtures.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::align_test {
namespace {

using Text = std::vector<std::int32_t>;

Alignment by_host(const Values& sketches, const TextPair& pair) {
  std::vector<float> other;
  const auto row = [&](std::int32_t i) { return sketches.data.data() + i * editing::kSketchWidth; };
  for (const std::int32_t i : pair.other) other.insert(other.end(), row(i), row(i) + editing::kSketchWidth);
  Aligner aligner(other);
  for (const std::int32_t i : pair.text) aligner.push(row(i));
  return aligner.result();
}

void require_same(const Alignment& actual, const Alignment& expected) {
  REQUIRE(actual.distance == expected.distance);
  REQUIRE(actual.to == expected.to);
  REQUIRE(actual.mismatch == expected.mismatch);
}

TEST_CASE("align: pairs of texts of any length come out as on the host, ties too", "[anchors]") {
  Random random(90);
  Values sketches = random.values(40, editing::kSketchWidth);
  for (std::int64_t row = 0; row < 40; ++row) {  // some far from each other, some near, some the same
    const float scale = row < 20 ? 0.2f : row < 30 ? 0.02f : 0.0f;
    for (std::int64_t c = 0; c < editing::kSketchWidth; ++c) sketches.at(row, c) *= scale;
  }
  const auto text = [&](std::int64_t n, std::int32_t first, std::int32_t end) {
    Text rows;
    for (std::int64_t i = 0; i < n; ++i)
      rows.push_back(first + static_cast<std::int32_t>(random.integer(0, end - first)));
    return rows;
  };
  std::vector<Text> texts;
  for (const auto& [n, m] : {std::pair(0, 0), {0, 9}, {9, 0}, {1, 1}, {17, 5}, {5, 17}, {40, 40}, {33, 64}}) {
    texts.push_back(text(n, 0, 40));
    texts.push_back(text(m, 0, 40));
  }
  texts.push_back(text(60, 20, 40));
  Text edited = texts.back();  // words left out, added and replaced
  edited.erase(edited.begin() + 7, edited.begin() + 12);
  edited.insert(edited.begin() + 30, {1, 2, 3});
  edited[44] = 5;
  texts.push_back(edited);
  std::vector<TextPair> pairs;
  for (std::size_t i = 0; i + 1 < texts.size(); i += 2) pairs.push_back({texts[i], texts[i + 1]});
  for (std::size_t i = 1; i < texts.size(); ++i) pairs.push_back({texts[16], texts[i]});  // one against many
  for_each_backend([&](Backend& backend) {
    INFO(backend.info().name);
    const std::vector<Alignment> actual = backend.align(sketches.view(), pairs);
    REQUIRE(actual.size() == pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      INFO("pair " << i);
      require_same(actual[i], by_host(sketches, pairs[i]));
    }
    REQUIRE(backend.align(sketches.view(), {}).empty());
  });
}

TEST_CASE("align: texts longer than the band, alike and not", "[anchors]") {
  Random random(91);
  Values sketches = random.values(900, editing::kSketchWidth);
  for (float& value : sketches.data) value *= 0.15f;
  Text ordered(900), other;
  for (std::size_t i = 0; i < ordered.size(); ++i) ordered[i] = static_cast<std::int32_t>(i);
  for (int i = 0; i < 700; ++i) other.push_back(static_cast<std::int32_t>(random.integer(0, 900)));
  const Text shifted(ordered.begin() + 100, ordered.begin() + 700), few(ordered.begin() + 3, ordered.begin() + 8);
  const std::vector<TextPair> pairs = {{shifted, ordered}, {other, shifted}, {ordered, few}, {few, ordered}};
  for_each_backend([&](Backend& backend) {
    INFO(backend.info().name);
    const std::vector<Alignment> actual = backend.align(sketches.view(), pairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      INFO("pair " << i);
      require_same(actual[i], by_host(sketches, pairs[i]));
    }
    CHECK(actual[0].to.front() == 100);
    CHECK(actual[0].distance == 100.0f / 600.0f);  // what is in front of the beginning was left out
    CHECK(actual[2].to.back() == 4);               // far outside of the band
  });
}

TEST_CASE("align refuses rows that are not there") {
  for_each_backend([](Backend& backend) {
    const Values sketches(3, editing::kSketchWidth);
    const Text good = {0, 1, 2}, bad = {0, 3};
    const TextPair first{good, bad}, second{bad, good};
    REQUIRE_THROWS_AS(backend.align(sketches.view(), {&first, 1}), std::invalid_argument);
    REQUIRE_THROWS_AS(backend.align(sketches.view(), {&second, 1}), std::invalid_argument);
    const Values narrow(3, editing::kSketchWidth - 1);
    const TextPair fine{good, good};
    REQUIRE_THROWS_AS(backend.align(narrow.view(), {&fine, 1}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace baton::test::align_test
