// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <thread>

#include "engine/loop/inbox.h"
#include "engine/loop/prefill_ahead.h"

namespace inbox_test {

using namespace baton;

TEST_CASE("work for the engine's thread runs between two steps, and never waits for itself", "[engine]") {
  Inbox inbox;
  std::thread engine([&] {
    Inbox::Work work;
    PrefillAhead* none = nullptr;
    while (inbox.wait(
        work, [] { return false; }, [] {})) {
      for (Inbox::Order& order : work.orders) order(*none);
      work.orders.clear();
    }
  });
  CHECK(inbox.on_thread<int>([] { return 7; }) == 7);
  // A callback of a request runs on the engine's thread.
  const auto inside = [&] { return inbox.on_thread<int>([] { return 8; }).value_or(0); };
  CHECK_THROWS_AS(inbox.on_thread<int>(inside), EngineError);
  inbox.close();
  engine.join();
  CHECK(inbox.on_thread<int>([] { return 9; }) == std::nullopt);
}

}  // namespace inbox_test
