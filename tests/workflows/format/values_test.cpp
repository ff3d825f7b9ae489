// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/yaml_tree.h"

#include <catch2/catch.hpp>

#include <cstdlib>

namespace baton {
namespace {

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
