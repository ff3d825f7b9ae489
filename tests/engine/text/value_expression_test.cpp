// SPDX-License-Identifier: Apache-2.0
#include "engine/text/templates.h"

#include <catch2/catch.hpp>

#include <map>

#include "tests/support/thread_time.h"

namespace baton::test::value_expression_test {
namespace {

using Kind = NamedValue::Kind;
using Values = std::map<std::string, NamedValue>;

const Values kValues = {
    {"verdict", {Kind::text, "yes"}},
    {"report", {Kind::json, R"({"score": 4, "ok": true, "ratio": 0.5, "bugs": ["a", "b"], "none": null})"}},
    {"round", {Kind::integer, {}, 3}},
    {"text", {Kind::text, "All tests passed.\n"}},
    {"count", {Kind::text, "12"}},
    {"nothing", {}}};

bool holds(const std::string& source, const Values& values = kValues) {
  return ValueExpression(source).holds([&](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? NamedValue{} : found->second;
  });
}

/// "reason at byte".
std::string error_of(const std::string& source) {
  try {
    return holds(source) ? "true" : "false";
  } catch (const ExpressionError& error) {
    return std::string(error.what()) + " at " + std::to_string(error.byte);
  }
}

std::string names_of(const std::string& source) {
  std::string out;
  const ValueExpression expression(source);
  for (const auto& name : expression.names()) {
    out += (out.empty() ? "" : " ") + name.name;
    for (const std::string& member : name.members) out += "." + member;
    out += "@" + std::to_string(name.byte);
  }
  return out;
}

TEST_CASE("expressions compare, join and look into values", "[expression]") {
  for (const char* source : {"verdict == 'yes'",
                             "verdict in ['yes', 'no']",
                             "'passed' in text",
                             "not 'failed' in text",
                             "'failed' not in text",
                             "report.score >= 4 and report.ok",
                             "report.bugs[1] == 'b'",
                             "report.bugs.0 == 'a'",
                             "report['score'] < 5 or missing",
                             "report.bugs | length == 2",
                             "count | int > round",
                             "round < 4",
                             "text.strip().endswith('passed.')",
                             "report.none is none",
                             "nothing is not defined",
                             "nothing | default('x') == 'x'",
                             "report.ratio * 2 == 1",
                             "text | trim | upper == 'ALL TESTS PASSED.'",
                             "nothing != 'yes'",
                             "nothing != missing",
                             "nothing != nothing",
                             "report.other != report.third",
                             "nothing not in [missing]",
                             "[nothing] != [missing]",
                             "(verdict == 'no' or round == 3) and not nothing",
                             "report.other is undefined"}) {
    INFO(source);
    CHECK(holds(source));
  }
  for (const char* source :
       {"verdict == 'no'", "nothing", "report.bugs == []", "count == 12", "round in [1, 2]", "nothing == missing",
        "nothing == nothing", "nothing == none", "report.other == report.third", "nothing in [missing, 1]",
        "nothing is eq(missing)", "verdict and nothing", "''", "0"}) {
    INFO(source);
    CHECK_FALSE(holds(source));
  }
}

TEST_CASE("errors of expressions say where", "[expression]") {
  CHECK(error_of("verdict ==") == "expected an expression, found its end at 10");
  CHECK(error_of("verdict = 'yes'") == "expected the end of the expression, found '=' at 8");
  CHECK(error_of("verdict == 'yes' }} and {{ x") == "expected the end of the expression, found ' and ' at 19");
  CHECK(error_of("report.score > 'four'").ends_with(" at 13"));
  CHECK(error_of("nothing.score is not defined") == "'nothing' has no value at 7");
  CHECK(error_of("nothing.score > 3") == "'nothing' has no value at 7");
  CHECK(error_of("verdict\nand ( )x") == "expected the end of the expression, found 'x' at 15");
  CHECK(error_of("verdict | rot13") == "the filter 'rot13' is not supported at 10");
  CHECK(error_of("").ends_with(" at 0"));
  CHECK(error_of(std::string(5000, 'a')) == "it has 5000 bytes; expected at most 4096 at 0");
  CHECK(error_of("-").find("expected an expression") == 0);
}

TEST_CASE("an expression knows the names that it reads", "[expression]") {
  CHECK(names_of("a.b[0].c == d and e['f'] | int > g.h()") == "a.b.0.c@0 d@12 e.f@18 g@33");
  CHECK(names_of("a.b is defined and a.b.c == 1") == "a@0 a.b.c@19");
  CHECK(names_of("a[b] == c | default(d.e)") == "a@0 b@2 c@8 d.e@20");
  CHECK(names_of("'a' == \"b\"") == "");
  CHECK(names_of("not x\n  and y") == "x@4 y@12");
}

TEST_CASE("what an expression may cost is bounded", "[expression]") {
  const std::string large(8u << 20, 'x');
  const std::string nested = std::string(2001, '[') + "]";
  const Values values = {{"text", {Kind::text, large}}, {"list", {Kind::json, nested}}};
  const double begin = thread_seconds();
  CHECK_THROWS_AS(holds("text * 1000 == text", values), ExpressionError);
  CHECK_THROWS_AS(holds("list == 1", values), ExpressionError);
  std::string again = "text | upper == text";
  while (again.size() < 4000) again += " or text | upper == text";
  CHECK_THROWS_AS(holds(again, values), ExpressionError);
  CHECK(thread_seconds() - begin < 2.0 * slowdown());
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "(";
  CHECK_THROWS_AS(ValueExpression(deep), ExpressionError);
  CHECK_THROWS_AS(ValueExpression(deep + "a"), ExpressionError);
}

}  // namespace
}  // namespace baton::test::value_expression_test
