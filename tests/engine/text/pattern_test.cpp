// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pattern.h"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/thread_time.h"

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
  CHECK(Pattern("x*$").last_answer("\xC3\xA9\xC3\xA9") == "");  // from one character to the next
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

TEST_CASE("matching costs no more than the size of the text allows") {
  const std::string a(40'000, 'a');
  std::string digits(40'000, '1');
  digits += 'x';
  const std::pair<const char*, const std::string&> cases[] = {
      {"([0-9]+)\\s*$", digits}, {"a(?=.*b)|a", a}, {"(a*)*b|a", a}, {"(?s)a.*?b|a", a}, {"[^b]+[cd]", a}};
  for (const auto& [pattern, text] : cases) {
    INFO(pattern);
    const double begin = test::thread_seconds();
    CHECK_THROWS_WITH(Pattern(pattern).last_answer(text), Catch::Matchers::Contains("matching a pattern failed"));
    CHECK(test::thread_seconds() - begin < 1.0 * test::slowdown());
  }
  std::string broken(300'000, '1');
  broken.back() = '\xff';
  const double begin = test::thread_seconds();
  CHECK(Pattern("[0-9]").last_answer(broken) == "1");
  CHECK(Pattern(".").last_answer(broken) == "\xEF\xBF\xBD");
  CHECK(test::thread_seconds() - begin < 2.0 * test::slowdown());
}

TEST_CASE("ordinary patterns search long answers") {
  std::string words, code;
  for (int i = 0; i < 20'000; ++i) words += "The answer is " + std::to_string(i) + ", I think.\n";
  for (int i = 0; i < 2'000; ++i) code += "```python\nprint(" + std::to_string(i) + ")\n```\n";
  CHECK(Pattern("The answer is (-?[0-9]+)").last_answer(words) == "19999");
  CHECK(Pattern("[0-9]+").last_answer(words) == "19999");
  CHECK(Pattern("(?s).*answer is (\\d+)").last_answer(words) == "19999");
  CHECK(Pattern("(?im)^the (\\w+) is.*think\\.$").last_answer(words) == "answer");
  CHECK(Pattern("(?s)```python\\n(.*?)```").last_answer(code) == "print(1999)\n");
  CHECK(Pattern("\\b(yes|no|maybe)\\b").last_answer(words) == std::nullopt);
  CHECK_FALSE(Pattern("[A-Za-z_]+\\s*=\\s*[0-9.]+").search(words));
}

TEST_CASE("no pattern runs for ever") {
  std::string text(100, 'a');
  text.back() = 'b';
  CHECK_THROWS_AS(Pattern("(a+)+$").search(text), std::runtime_error);
  CHECK_THROWS_AS(Pattern("(a|a)*[bc]").last_answer(std::string(100, 'a')), std::runtime_error);
}

}  // namespace
}  // namespace baton
