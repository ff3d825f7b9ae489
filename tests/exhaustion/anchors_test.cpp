// SPDX-License-Identifier: Apache-2.0
// Memory runs out where an answer is compared with anchors while it is decoded: that only saves its readers work.
#include "engine/reuse/anchors/anchors.h"

#include <catch2/catch.hpp>

#include "engine/base/errors.h"
#include "engine/cpu/cpu.h"
#include "tests/exhaustion/faults.h"
#include "tests/support/tiny_model.h"

namespace anchors_test {

using namespace baton;
using namespace baton::test;

TEST_CASE("an answer goes on where no memory is left to compare it with anchors", "[exhaustion]") {
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {});
  const std::vector<TokenId> answer = random_tokens(20, 1);
  const std::string slot = "agent_author_current", pool = "pool";
  auto text = std::make_shared<SketchedText>();
  text->tokens = random_tokens(10, 2);
  text->sketch.resize(10 * SketchedText::kSketch);
  text->hash = hash_of(text->tokens);
  const auto anchor = std::make_shared<Anchor>();
  anchor->shape = KvWidth{{1}};
  anchor->length = 10;
  anchor->text = text;
  int failures = 0;
  for (std::int64_t point = 1, injected = 1; injected > 0; ++point) {
    Anchors anchors(*backend, *model, 1 << 20);
    anchors.store().add({1, slot, pool}, anchor, 4);
    arm(Fault::allocation, point);
    const bool went_on = try_to([&] { anchors.follow(7, slot, pool, std::span(answer).first(12)); });
    injected = disarm();
    CAPTURE(point);
    CHECK(went_on);
    failures += injected > 0 ? 1 : 0;
    anchors.follow(7, slot, pool, answer);
    anchors.ended(7, answer, 20);
  }
  CHECK(failures > 0);
}

}  // namespace anchors_test
