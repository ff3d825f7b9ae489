// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/diagnostics.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("the closest word is near enough to be meant") {
  CHECK(closest("agent_analist_current", {"agent_inspector_current", "agent_analyst_current"}) ==
        "agent_analyst_current");
  CHECK(closest("mian", {"main", "nano"}) == "main");  // a swap is one edit
  CHECK(closest("temprature", {"temperature", "timeout"}) == "temperature");
  CHECK(closest("colour", {"model", "prompt"}).empty());
  CHECK(closest("a", {"b", "c"}).empty());
  CHECK(closest("", {"b"}).empty());
  CHECK(closest("ab", {}).empty());
}

TEST_CASE("diagnostics are sorted by place and shown once") {
  Diagnostics diagnostics;
  CHECK(diagnostics.empty());
  diagnostics.error({"b.yaml", 1, 1, 1}, "E0401", "third");
  diagnostics.error({"a.yaml", 2, 5, 3}, "E0401", "second", "try this");
  diagnostics.error({"a.yaml", 1, 9, 1}, "E0401", "first");
  diagnostics.error({"a.yaml", 2, 5, 3}, "E0401", "second", "try this");
  diagnostics.add_source("a.yaml", "one\r\ntwo \tthree\n");
  CHECK(diagnostics.format() ==
        "a.yaml:1:9: error[E0401]: first\n"
        "    1 | one\n"
        "      |    ^\n"
        "a.yaml:2:5: error[E0401]: second\n"
        "    2 | two \tthree\n"
        "      |     ^^^ try this\n"
        "b.yaml:1:1: error[E0401]: third\n");
}

TEST_CASE("a caret stands under a character, not under a byte") {
  Diagnostics diagnostics;
  diagnostics.add_source("a.yaml", "größe: x");
  diagnostics.error({"a.yaml", 1, 8, 1}, "E0401", "here");
  CHECK(diagnostics.format() == "a.yaml:1:8: error[E0401]: here\n    1 | größe: x\n      |        ^\n");
}

TEST_CASE("long lines are cut around the caret") {
  Diagnostics diagnostics;
  std::string line(10'000, 'x');
  line.replace(5000, 4, "here");
  diagnostics.add_source("a.yaml", line);
  diagnostics.error({"a.yaml", 1, 5001, 4}, "E0401", "m");
  const std::string text = diagnostics.format();
  CHECK(text.size() < 500);
  CHECK(text.find("xherex") != std::string::npos);
  std::string under(80, ' ');
  under += "^^^^\n";
  CHECK(text.find(under) != std::string::npos);
}

TEST_CASE("control characters never reach a terminal") {
  Diagnostics diagnostics;
  diagnostics.error({"a.yaml", 0, 0, 1}, "E0401", "red \x1b[31m", "hint\n");
  CHECK(diagnostics.format() == "a.yaml: error[E0401]: red ?[31m\n      hint?\n");
}

TEST_CASE("a flood of errors is cut") {
  Diagnostics diagnostics;
  for (int i = 0; i < 500; ++i) diagnostics.error({"a.yaml", i + 1, 1, 1}, "E0401", "m");
  CHECK(diagnostics.items().size() == 100);
  CHECK(diagnostics.format().find("only the first 100 errors are shown") != std::string::npos);
}

}  // namespace
}  // namespace baton
