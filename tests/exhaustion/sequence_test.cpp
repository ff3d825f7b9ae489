// SPDX-License-Identifier: Apache-2.0
// Memory runs out where the check of a tentative answer begins: the answer is then the tentative one that it was, or
// there is none.
#include "engine/loop/sequence.h"

#include <catch2/catch.hpp>

#include "engine/base/errors.h"
#include "engine/cpu/cpu.h"
#include "tests/exhaustion/faults.h"
#include "tests/support/tiny_model.h"

namespace sequence_test {

using namespace baton;
using namespace baton::test;

TEST_CASE("a check that finds no memory to begin leaves the tentative answer as it was", "[exhaustion]") {
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {});
  GenerationRequest request;
  request.prompt = {{"", {1, 2, 3}}};
  request.stop = {"a text that ends the answer"};
  const std::vector<TokenId> written = {4, 5, 6};
  int failures = 0;
  bool failed = true;
  for (std::int64_t point = 1; failed; ++point) {
    Sequence sequence(1, request, {}, *model, nullptr);
    sequence.be_tentative(7);
    sequence.result().tokens = written;
    arm(Fault::allocation, point);
    failed = !try_to([&] { sequence.begin_check(); });
    disarm();
    CAPTURE(point);
    CHECK(sequence.speculation.is_tentative() == failed);
    if (failed) {
      ++failures;
      CHECK(sequence.result().tokens == written);
      sequence.fail("out of memory");
      CHECK(sequence.result().reason == FinishReason::error);
    }
    CHECK(sequence.result().tokens.empty());
    CHECK(sequence.result().tentative_tokens == 3);
  }
  CHECK(failures > 0);
}

}  // namespace sequence_test
