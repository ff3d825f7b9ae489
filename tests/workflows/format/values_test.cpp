// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/values.h"

#include <catch2/catch.hpp>

#include <cstdlib>

namespace baton {
namespace {

TEST_CASE("durations") {
  CHECK(parse_duration("30s")->count() == 30'000);
  CHECK(parse_duration("500ms")->count() == 500);
  CHECK(parse_duration("1.5m")->count() == 90'000);
  CHECK(parse_duration("0.1s")->count() == 100);
  CHECK(parse_duration("2h")->count() == 7'200'000);
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

TEST_CASE("environment variables in strings") {
  ::setenv("BATON_TEST_SET", "value ${env:BATON_TEST_EMPTY} {{ x }}", 1);
  ::setenv("BATON_TEST_EMPTY", "", 1);
  ::unsetenv("BATON_TEST_UNSET");
  const auto resolve = [](std::string_view text) { return resolve_environment(text, Secrets::refuse); };
  CHECK(resolve("a ${env:BATON_TEST_SET} b").text == "a value ${env:BATON_TEST_EMPTY} {{ x }} b");  // never read again
  CHECK(resolve("${env:BATON_TEST_UNSET:-or: else}").text == "or: else");
  CHECK(resolve("${env:BATON_TEST_EMPTY:-else}").text == "else");
  CHECK(resolve("[${env:BATON_TEST_EMPTY}]").text == "[]");
  CHECK(resolve("${env:BATON_TEST_UNSET:-}").text.empty());
  CHECK(resolve("$5 ${HOME} $${env:X} $").text == "$5 ${HOME} ${env:X} $");
  CHECK_FALSE(resolve("$5 ${HOME}").changed);
  CHECK(resolve("${env:BATON_TEST_UNSET}").code == "E0503");
  CHECK(resolve("${env:A B}").code == "E0503");
  CHECK(resolve("${env:A").code == "E0503");
  CHECK(resolve("${secret:KEY}").code == "E0504");
  CHECK(resolve_environment("x ${secret:KEY}", Secrets::keep).text == "x ${secret:KEY}");
  ::setenv("BATON_TEST_SET", "a\xff", 1);
  CHECK(resolve("${env:BATON_TEST_SET}").text == "a\xEF\xBF\xBD");
}

}  // namespace
}  // namespace baton
