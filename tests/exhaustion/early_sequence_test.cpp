// SPDX-License-Identifier: Apache-2.0
// Memory runs out in the middle of what an early prompt is told: it is then the prompt that it was before.
#include <catch2/catch.hpp>

#include "engine/base/errors.h"
#include "engine/loop/prefill_ahead.h"
#include "tests/exhaustion/faults.h"

namespace early_sequence_test {

using namespace baton;
using namespace baton::test;

TEST_CASE("an early prompt that finds no memory for an update stays as it was", "[exhaustion]") {
  using Tokens = std::vector<TokenId>;
  const auto known = [](const EarlySequence& sequence) {
    return Tokens(sequence.known().begin(), sequence.known().end());
  };
  const Tokens decoded(20, 7);
  int failures = 0;
  bool failed = true;
  for (std::int64_t point = 1; failed; ++point) {
    EarlySequence sequence(1, {{{{1, 2, 3}}, {{}, 7}, {{4}}}, false, 100, {}}, {});
    sequence.refresh([&](RequestId) { return &decoded; });
    const Tokens before = known(sequence);
    REQUIRE(before.size() == 23);
    std::vector<EarlyPart> parts = {{{1, 2}}, {Tokens(30, 8)}, {Tokens(5, 9)}};
    arm(Fault::allocation, point);
    failed = !try_to([&] { sequence.update(std::move(parts), true); });
    disarm();
    CAPTURE(point);
    if (failed) {
      ++failures;
      CHECK(known(sequence) == before);
      CHECK(sequence.prompt().parts.size() == 3);
      CHECK(sequence.prompt().parts.at(1).decoded_by == 7);
      CHECK_FALSE(sequence.prompt().complete);
    } else {
      CHECK(sequence.known().size() == 37);
      CHECK(sequence.settled());
    }
  }
  CHECK(failures > 1);
}

}  // namespace early_sequence_test
