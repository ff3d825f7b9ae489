// SPDX-License-Identifier: Apache-2.0
// Grammars in GBNF.
#include <catch2/catch.hpp>
#include <random>

#include "engine/text/constrain/grammar.h"
#include "tests/support/thread_time.h"

namespace gbnf_test {

using namespace baton;
using Catch::Contains;

namespace {

bool holds(const std::string& gbnf, const std::string& text) { return accepts(*gbnf_grammar(gbnf), text); }

constexpr const char* kArithmetic = R"gbnf(# sums of products
root  ::= expr "=" ws term "\n"
expr  ::= term ([-+*/] term)*
term  ::= ident | num | (
          "(" ws expr ")" ws  # a group may span lines
          )
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf";

}  // namespace

TEST_CASE("gbnf: a grammar of sums", "[constrain]") {
  CHECK(holds(kArithmetic, "(a +12) *b1=c\n"));
  CHECK(holds(kArithmetic, "((((1))))=2\n"));
  CHECK_FALSE(holds(kArithmetic, "(a + 12 * b1=c\n"));
  CHECK_FALSE(holds(kArithmetic, "a=b"));
  CHECK_FALSE(holds(kArithmetic, "1 + =2\n"));
}

TEST_CASE("gbnf: literals, brackets, repetitions and comments", "[constrain]") {
  CHECK(holds("root ::= \"a\\\"\\\\\\n\\x41\\u00e9\\U0001F600\"", "a\"\\\nA\xc3\xa9\xf0\x9f\x98\x80"));
  CHECK(holds("root ::= [^\\n\\]]+", "[x-\xe2\x82\xac"));
  CHECK_FALSE(holds("root ::= [^\\n\\]]+", "x]"));
  CHECK(holds("root ::= [a-zA-Z\xc3\xa0-\xc3\xbf_-]{2,3}", "\xc3\xa9-"));
  CHECK_FALSE(holds("root ::= [a-z]{2,3}", "abcd"));
  CHECK(holds("root ::= \"a\"{2} \"b\"{1,} \"c\"? .", "aabbb\n"));
  CHECK(holds("root ::= | \"x\" # nothing, or x", ""));
  CHECK(holds("root ::= \"x\" |\n  \"y\"\n\n\n# the end", "y"));
  CHECK(holds("a-b_9 ::= \"1\"\nroot ::= a-b_9+", "111"));
  CHECK(holds("root ::= (\"a\" | (\"b\" \"c\")*){2}", "abcbc"));
  CHECK(holds("root ::= \"no # comment\"", "no # comment"));
}

TEST_CASE("gbnf: nesting is counted, not lost", "[constrain]") {
  // Texts of two letters that read the same from both ends.
  const std::string mirrored = "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\"? | \"b\"";
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (unsigned n = random() % 9; n > 0; --n) text += random() % 2 == 0 ? 'a' : 'b';
    if (i % 2 == 0) text += std::string(text.rbegin(), text.rend());
    CHECK(holds(mirrored, text) == std::equal(text.begin(), text.end(), text.rbegin()));
  }
}

TEST_CASE("changed grammars and expressions are compiled or refused", "[constrain]") {
  std::mt19937 random(9);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int compiled = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = i % 2 == 0 ? kArithmetic : "^(a|[b-d\\w]{2,4}(?:x\\.y*?)+)?[^\\n\"]{1,9}$|z\\x41+";
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      static constexpr char kBytes[] = "\\\"[](){}|*+?^$.#:=-,09azu\n \xc3\x00";
      const std::size_t at = below(text.size());
      if (below(3) == 0)
        text.erase(at, 1 + below(3));
      else
        text.insert(at, 1, kBytes[below(sizeof(kBytes) - 1)]);
      if (text.empty()) text = "a";
    }
    try {
      accepts(i % 2 == 0 ? *gbnf_grammar(text) : *regex_grammar(text), "ab.y\n=12");
      ++compiled;
    } catch (const ConstraintError&) {
      ++refused;
    }
  }
  CHECK(compiled > 500);
  CHECK(refused > 500);
}

TEST_CASE("GBNF: checking a text costs no more than its size allows") {
  // Each byte makes a new state, of which each has many ways to go on.
  const auto grammar =
      gbnf_grammar("root ::= [^\\x00]{0,400} x\nx ::= (" + std::string(1000, '|') + "){900} [^\\x00]{0,1500}\n");
  const double begin = test::thread_seconds();
  CHECK_THROWS_WITH(accepts(*grammar, std::string(1500, 'a')), Contains("more steps than a text of 1500 bytes"));
  CHECK(test::thread_seconds() - begin < 2.0 * test::slowdown());
  const auto plain = gbnf_grammar("root ::= (word \" \")* word\nword ::= [a-z]{1,20}");
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "abcdefgh ";
  CHECK(accepts(*plain, text + "a"));
}

TEST_CASE("gbnf: errors name the rule or the place", "[constrain]") {
  const auto error = [](const std::string& gbnf) -> std::string {
    try {
      gbnf_grammar(gbnf);
    } catch (const ConstraintError& wrong) {
      return wrong.what();
    }
    return "no error";
  };
  CHECK(error("") == "the grammar has no rule 'root'");
  CHECK(error("root ::= item") == "the grammar has no rule 'item'");
  CHECK(error("root ::= \"a\"\nitem ::= (\"b\"\n") == "expected ')' at line 3, character 1 of the grammar");
  CHECK_THAT(error("root ::= \"a\"\nroot ::= \"b\""), Contains("'root' is there twice at line 2"));
  CHECK_THAT(error("root = \"a\""), Contains("expected '::='"));
  CHECK_THAT(error("root ::= \"a"), Contains("end of the literal"));
  CHECK_THAT(error("root ::= \"\\d\""), Contains("this escape is not supported"));
  CHECK_THAT(error("root ::= [a"), Contains("expected ']'"));
  CHECK_THAT(error("root ::= *"), Contains("expected a literal"));
  CHECK_THAT(error("root ::= \"a\" )"), Contains("expected the end of the rule"));
  CHECK_THAT(error("root ::= \"a\"{2,1}"), Contains("at least 2"));
  CHECK_THAT(error("root ::= \"a\"" + std::string(60'000, '?')), Contains("expected one repetition"));
  CHECK_THAT(error("root ::= root \"a\" | \"b\""), Contains("rule 'root' is left-recursive"));
  CHECK_THAT(error("root ::= ws sum\nws ::= [ ]*\nsum ::= (ws sum \"+\")? \"1\""),
             Contains("rule 'sum' is left-recursive"));
  CHECK_THAT(error("root ::= \"(\" root \")\""), Contains("no text fulfils it"));
  std::string wide = "root ::=";
  for (int i = 0; i < 9'000; ++i) wide += "[^a]{3}";
  CHECK_THAT(error(wide), Contains("too large"));
  CHECK_THAT(error("root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')')),
             Contains("nested too deeply"));
  std::string many = "root ::= \"a\"\n";
  for (int i = 0; i < 1100; ++i) many += "r" + std::to_string(i) + " ::= \"b\"\n";
  CHECK_THAT(error(many), Contains("1101 rules"));
  CHECK_THAT(error("root ::= \"" + std::string(70'000, 'a') + "\""), Contains("65536"));
}

}  // namespace gbnf_test
