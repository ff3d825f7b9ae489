// SPDX-License-Identifier: Apache-2.0
#include "engine/base/units/numbers.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("durations") {
  CHECK(parse_duration("30s")->count() == 30'000);
  CHECK(parse_duration("500ms")->count() == 500);
  CHECK(parse_duration("1.5m")->count() == 90'000);
  CHECK(parse_duration("0.1s")->count() == 100);
  CHECK(parse_duration("2h")->count() == 7'200'000);
  CHECK(parse_duration("1.5", "s")->count() == 1500);
  CHECK(parse_duration("500ms", "s")->count() == 500);
  CHECK(!parse_duration("1.5"));
  CHECK(!parse_duration("", "s"));
  CHECK(!parse_duration("1e3", "s"));
  for (const char* bad :
       {"", "s", "30", "30 s", "-1s", "1e3s", "0.5ms", "1..5s", "1d", "30S", "999999999999999999h", "0x10s", "inf s"}) {
    INFO(bad);
    CHECK(!parse_duration(bad));
  }
}

TEST_CASE("sizes") {
  CHECK(*parse_size("4GiB") == 4'294'967'296);
  CHECK(*parse_size("0.5MiB") == 524'288);
  CHECK(*parse_size("16KiB") == 16'384);
  CHECK(*parse_size("100B") == 100);
  CHECK(*parse_size("1TiB") == 1'099'511'627'776);
  for (const char* bad : {"", "4", "4GB", "4gib", "0.3B", "GiB", "-1B", "999999TiB"}) {
    INFO(bad);
    CHECK(!parse_size(bad));
  }
}

}  // namespace
}  // namespace baton
