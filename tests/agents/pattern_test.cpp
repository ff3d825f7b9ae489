// SPDX-License-Identifier: Apache-2.0
#include "agents/pattern.h"

#include <catch2/catch.hpp>

#include <stdexcept>

namespace baton {
namespace {

TEST_CASE("patterns are searched anywhere") {
  CHECK(Pattern("CONFIRMED").search("it is CONFIRMED."));
  CHECK_FALSE(Pattern("^CONFIRMED").search("it is CONFIRMED."));
  CHECK(Pattern("gr..e").search("größe"));  // characters, not bytes
  CHECK(
      Pattern("b").search("a\xff"
                          "b"));  // broken UTF-8 is passed over
  CHECK(Pattern("").search(""));
}

TEST_CASE("the answer is the first group of the last match") {
  const Pattern answer("The answer is (-?[0-9]+)");
  CHECK(answer.last_answer("The answer is 3. No: The answer is -14.") == "-14");
  CHECK(answer.last_answer("The answer is unknown") == std::nullopt);
  CHECK(Pattern("[0-9]+").last_answer("1 and 23") == "23");
  CHECK(Pattern("a(b)?").last_answer("ab a") == "");
  CHECK(Pattern("x*").last_answer("ax") == "");
  CHECK(Pattern("(?=(a))").last_answer("aa") == "a");
  CHECK(Pattern("ab\\K").last_answer("abab") == "");
}

TEST_CASE("bad patterns say where") {
  CHECK_THROWS_WITH(Pattern("a("), "missing closing parenthesis at character 3 of the pattern");
  CHECK_THROWS_AS(Pattern("\\C"), std::invalid_argument);
  CHECK_THROWS_AS(Pattern(std::string(5000, 'a')), std::invalid_argument);
}

TEST_CASE("no pattern runs for ever") {
  std::string text(100, 'a');
  text.back() = 'b';
  CHECK_THROWS_AS(Pattern("(a+)+$").search(text), std::runtime_error);
  CHECK_THROWS_AS(Pattern("(a|a)*[bc]").last_answer(std::string(100, 'a')), std::runtime_error);
}

}  // namespace
}  // namespace baton
