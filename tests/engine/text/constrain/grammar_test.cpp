// SPDX-License-Identifier: Apache-2.0
// Constraints as grammars: what they accept, compared with independent oracles, and what is refused.
#include "engine/text/constrain/grammar.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <random>
#include <regex>

#include "engine/base/utf8.h"
#include "engine/text/constrain/machine.h"
#include "engine/text/constrain/regex_reader.h"

namespace grammar_test {

using namespace baton;
using namespace baton::constrain;
using Catch::Contains;

namespace {

bool matches(const std::string& regex, const std::string& text) { return accepts(*regex_grammar(regex), text); }

/// All texts of up to `length` of the letters.
std::vector<std::string> texts_of(const std::string& letters, std::size_t length) {
  std::vector<std::string> all{""};
  for (std::size_t begin = 0, n = 0; n < length; ++n) {
    const std::size_t end = all.size();
    for (; begin < end; ++begin)
      for (const char letter : letters) all.push_back(all[begin] + letter);
  }
  return all;
}

/// `looks`: parts of it may ask for what stands around them.
std::string random_regex(std::mt19937& random, int depth, bool looks = false) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (looks && below(4) == 0) {
    const char* const signs[] = {"\\b", "\\B", "^", "$", "(?=", "(?!"};
    const int kind = below(6);
    return signs[kind] + (kind < 4 ? "" : random_regex(random, depth - 1, depth > 2) + ")");
  }
  const auto random_regex = [looks](std::mt19937& of, int inside) {
    return grammar_test::random_regex(of, inside, looks);
  };
  switch (below(depth > 0 ? 9 : 4)) {
    case 0:
      return "a";
    case 1:
      return "b";
    case 2:
      return std::vector<std::string>{"[ab]", "[^b]", "[a-c]", "\\w", "."}[static_cast<std::size_t>(below(5))];
    case 3:
      return "c";
    case 4:
      return random_regex(random, depth - 1) + random_regex(random, depth - 1);
    case 5:
      return "(" + random_regex(random, depth - 1) + "|" + random_regex(random, depth - 1) + ")";
    case 6:
      return "(?:" + random_regex(random, depth - 1) + ")*";
    case 7:
      return "(" + random_regex(random, depth - 1) + ")" + (below(2) == 0 ? "+" : "?");
    default:
      return "(" + random_regex(random, depth - 1) + "){" + std::to_string(below(2)) + "," +
             std::to_string(1 + below(3)) + "}";
  }
}

}  // namespace

TEST_CASE("a grammar of a regular expression accepts what std::regex matches", "[constrain]") {
  const std::vector<std::string> texts = texts_of("abc-", 5);
  std::size_t accepted = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const std::string regex = random_regex(random, 4);
    const std::regex oracle(regex);
    const auto grammar = regex_grammar(regex);
    for (const std::string& text : texts) {
      const bool found = accepts(*grammar, text);
      accepted += found ? 1 : 0;
      if (found != std::regex_match(text, oracle)) FAIL(seed << ": " << regex << " and '" << text << "'");
    }
  }
  CHECK(accepted > 1000);
}

TEST_CASE("what a regular expression asks for around its parts is as in std::regex", "[constrain]") {
  const std::vector<std::string> texts = texts_of("ab-", 5);
  std::size_t compared = 0, found = 0, refused = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const std::string regex = random_regex(random, 3, true);
    const std::regex oracle(regex);
    std::optional<CharacterMachine> machine;
    std::shared_ptr<const Grammar> grammar;
    try {
      machine = CharacterMachine::of_pattern(regex);
      if (machine->empty()) continue;
      const Rule rule{"pattern", machine->expression()};
      grammar = std::make_shared<const Grammar>(std::span(&rule, 1));
    } catch (const ConstraintError& error) {
      CHECK_THAT(error.what(), Contains("asks for what stands in front of it"));
      ++refused;
      continue;
    }
    for (const std::string& text : texts) {
      const bool is_in = accepts(*grammar, text);
      ++compared;
      found += is_in ? 1 : 0;
      if (is_in != std::regex_search(text, oracle)) FAIL(seed << ": " << regex << " and '" << text << "'");
    }
  }
  CHECK(compared > 50'000);
  CHECK(found > 5'000);
  CHECK(found < compared - 5'000);
  CHECK(refused < 80);
}

TEST_CASE("the syntax of regular expressions", "[constrain]") {
  CHECK(matches("^(yes|no)$", "yes"));
  CHECK_FALSE(matches("yes|no", "yes "));
  CHECK(matches("^a|b$", "b"));
  CHECK(matches("\\d{3}-\\d{4}", "555-1234"));
  CHECK(matches("a{2,}", "aaaa"));
  CHECK_FALSE(matches("a{2,3}", "aaaa"));
  CHECK(matches("a*?b+?", "aab"));
  CHECK(matches("\\x41\\u00e9\\.\\/", "A\xc3\xa9./"));
  CHECK(matches("[\\d\\-x]+", "1-x"));
  CHECK(matches("[^\"\\\\]", "\xf0\x9f\x98\x80"));
  CHECK_FALSE(matches(".", "\n"));
  CHECK(matches(".", "\xe2\x82\xac"));
  CHECK_FALSE(matches("..", "\xe2\x82\xac"));
  CHECK_FALSE(matches(".", "\xe2\x82"));
  CHECK_FALSE(matches("[^a]", "\xed\xa0\x80"));  // a surrogate is no character
  CHECK(matches("[a-zà-ÿ]{2}", "né"));
  CHECK(matches("", ""));
  CHECK(matches("(?=.*\\d)(?!.*--)[a-z\\d-]+(?<!-)", "a-1"));
  for (const char* text : {"a-b", "a--1", "1-"}) {
    INFO(text);
    CHECK_FALSE(matches("(?=.*\\d)(?!.*--)[a-z\\d-]+(?<!-)", text));
  }
  CHECK(matches("[\\w-.]+", "a-.b"));
  CHECK(matches("[^]", "\n"));
  CHECK(matches("[\\u{1F600}-\\u{1F64F}]", "\xf0\x9f\x98\x80"));
  CHECK(matches("\\p{Lu}\\P{L}[\\p{Script=Greek}\\p{Emoji}]+",
                "\xc3\x89"
                "1\xce\xb1\xf0\x9f\x98\x80"));
  CHECK_FALSE(matches("\\p{Letter}", "1"));
}

TEST_CASE("the ranges of bytes hold exactly the characters of a set", "[constrain]") {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    CodePointSet set;
    for (int i = 0; i < 3; ++i) {
      const auto low = static_cast<char32_t>(random() % (1u << (4 + random() % 17)));
      set.add({low, low + static_cast<char32_t>(random() % (1u << (1 + random() % 16)))});
    }
    if (set.empty()) continue;
    const Rule rule{"set", characters(set)};
    GrammarStates states(std::make_shared<const Grammar>(std::span(&rule, 1)));
    const auto member = [&](std::string_view bytes) {
      GrammarStates::State* state = states.start();
      for (const char byte : bytes) state = states.next(state, static_cast<std::uint8_t>(byte));
      return state->complete();
    };
    for (char32_t c = 0; c <= 0x10FFFF; c += (c < 0x3000 ? 1 : 1 + random() % 37)) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string bytes;
      utf8::append(bytes, c);
      if (member(bytes) != set.contains(c)) FAIL("round " << round << ", character " << static_cast<unsigned>(c));
    }
    for (int i = 0; i < 20000; ++i) {
      std::string bytes;
      for (unsigned n = 1 + random() % 4; n > 0; --n)
        bytes += static_cast<char>(random() % 3 == 0 ? random() : 0x80 | random() % 0x80);
      if (!utf8::is_valid(bytes) && member(bytes)) FAIL("round " << round << ": bytes that are not UTF-8");
    }
  }
}

TEST_CASE("a list of texts", "[constrain]") {
  const auto grammar = enum_grammar(std::vector<std::string>{"yes", "yes please", "né"});
  for (const char* text : {"yes", "yes please", "né"}) CHECK(accepts(*grammar, text));
  for (const char* text : {"", "ye", "yes ", "no", "n\xc3"}) CHECK_FALSE(accepts(*grammar, text));
  CHECK_THROWS_WITH(enum_grammar({}), Contains("no text fulfils it"));
  CHECK_THROWS_WITH(enum_grammar(std::vector<std::string>(2000, "a")), Contains("2000") && Contains("1024"));
}

TEST_CASE("what a regular expression may not be, with the place", "[constrain]") {
  const auto error = [](const std::string& regex) -> std::string {
    try {
      regex_grammar(regex);
    } catch (const ConstraintError& wrong) {
      return wrong.what();
    }
    return "no error";
  };
  CHECK(error("a(b") == "expected ')' at character 4 of the regular expression");
  CHECK_THAT(error("a)b"), Contains("character 2"));
  CHECK_THAT(error("(?=a)"), Contains("no text fulfils it"));
  CHECK_THAT(error("(?>a)"), Contains("this one is not supported"));
  CHECK_THAT(error("b(?<=ab)"), Contains("look-behinds of one character"));
  CHECK_THAT(error("(a)\\1"), Contains("this escape is not supported"));
  CHECK_THAT(error("\\p{Lx}"), Contains("unknown property of Unicode 'Lx'"));
  CHECK_THAT(error("\\p{L"), Contains("too early"));
  CHECK_THAT(error("\\u{110000}"), Contains("not a character"));
  CHECK_THAT(error("a**"), Contains("found two"));
  CHECK_THAT(error("*"), Contains("nothing to repeat"));
  CHECK_THAT(error("a{3,2}"), Contains("at least 3"));
  CHECK_THAT(error("a{,2}"), Contains("expected a number"));
  CHECK_THAT(error("[]"), Contains("expected a character"));
  CHECK_THAT(error("[z-a]"), Contains("expected a range"));
  CHECK_THAT(error("[[:alpha:]]"), Contains("POSIX"));
  CHECK_THAT(error("[a"), Contains("expected ']'"));
  CHECK_THAT(error("a$b"), Contains("no text fulfils it"));
  CHECK_THAT(error("a^b"), Contains("no text fulfils it"));
  CHECK_THAT(error("\\ud800"), Contains("not a character"));
  CHECK_THAT(error("\xff"), Contains("not valid UTF-8"));
  CHECK_THAT(error("[^\\s\\S]"), Contains("no text fulfils it"));
  CHECK_THAT(error(std::string(5000, 'a')), Contains("5000 bytes") && Contains("4096"));
  CHECK_THAT(error(std::string(100, '(') + "a" + std::string(100, ')')), Contains("nested too deeply"));
}

TEST_CASE("hostile expressions are refused or bounded soon", "[constrain]") {
  const auto begin = std::chrono::steady_clock::now();
  // Repetitions are counted: how often is a number beside each place.
  CHECK_THROWS_WITH(matches("(.{1,1000}){1,1000}", std::string(5000, 'a')), Contains("ambiguous"));
  CHECK_THROWS_WITH(matches("((((){1000}){1000}){1000}){1000}", ""), Contains("ambiguous"));
  CHECK(matches("a{3,999999}", std::string(5000, 'a')));
  CHECK_FALSE(matches("a{3,4999}", std::string(5000, 'a')));
  CHECK_FALSE(matches("a{5001,}", std::string(5000, 'a')));
  CHECK(matches("((a*)*)*b", std::string(5000, 'a') + "b"));
  CHECK(matches("(a|a)*(a|aa)*b", std::string(5000, 'a') + "b"));
  CHECK_FALSE(matches("(a*)*b", std::string(5000, 'a')));
  // The deterministic states of this expression double with each repetition.
  std::string coin;
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) coin += random() % 2 == 0 ? 'a' : 'b';
  CHECK_NOTHROW(matches("(a|b)*a(a|b){30}", coin));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("counted repetitions hold the texts that written out ones hold", "[constrain]") {
  // Each expression stands there twice: with bounds that are counted, and as what they mean.
  const std::pair<const char*, const char*> pairs[] = {
      {"(ab|c){0,90}d", "(ab|c)*d"},
      {"(a{2,3}b){1,70}", "(aaa?b)+"},
      {"([^a]{2}){1,90}x?", "([^a][^a])+x?"},
      {"((a|b){1,2}c){33,99}", "(((a|b)(a|b)?c){3}){11,33}"},
      {"(a?b?){70,}", "(a?b?)*"},
  };
  std::mt19937 random(9);
  int held = 0;
  for (const auto& [counted, meant] : pairs) {
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (std::size_t n = random() % (i % 2 == 0 ? 12 : 120); n > 0; --n)
        text += "abcdx"[random() % (i % 3 == 0 ? 5 : 3)];
      INFO(counted << " on " << text);
      const bool in = matches(meant, text);
      held += in ? 1 : 0;
      REQUIRE(matches(counted, text) == in);
    }
  }
  CHECK(held > 400);
}

TEST_CASE("states are bounded in memory, not only in number", "[constrain]") {
  GrammarStates states(regex_grammar("(a|b)*a(a|b){400}"));  // a state has some 200 places
  std::mt19937 random(6);
  GrammarStates::State* state = states.start();
  while (!states.crowded()) state = states.next(state, random() % 2 == 0 ? 'a' : 'b');
  CHECK(states.size() < 5000);
}

TEST_CASE("rules that call one another", "[constrain]") {
  // S ::= "(" S ")" S | ""
  const auto nested = [](std::int32_t depth) {
    const Rule rule{"S", choice({sequence({text("("), call(0), text(")"), call(0)}), text("")})};
    return std::make_shared<const Grammar>(std::span(&rule, 1), depth);
  };
  const auto oracle = [](const std::string& text, int depth) {
    int open = 0;
    for (const char c : text) {
      open += c == '(' ? 1 : -1;
      if (open < 0 || open > depth) return false;
    }
    return open == 0;
  };
  for (const int depth : {1, 2, 40}) {
    const auto grammar = nested(depth);
    for (const std::string& text : texts_of("()", 10)) CHECK(accepts(*grammar, text) == oracle(text, depth));
  }
  // Right recursion opens no frames: a long text needs no depth.
  const Rule list{"list", choice({sequence({text("a"), call(0)}), text("b")})};
  CHECK(accepts(Grammar(std::span(&list, 1), 1), std::string(3000, 'a') + "b"));
}

TEST_CASE("left recursion is refused, and names the rule", "[constrain]") {
  const Rule direct[] = {{"root", call(1)}, {"sum", choice({sequence({call(1), text("+1")}), text("1")})}};
  CHECK_THROWS_WITH(Grammar(direct, 10), Contains("rule 'sum' is left-recursive"));
  const Rule hidden[] = {{"root", sequence({maybe(text("a")), call(1)})},
                         {"tail", sequence({maybe(text("b")), call(2), text("c")})},
                         {"end", choice({call(1), text("d")})}};
  CHECK_THROWS_WITH(Grammar(hidden, 10), Contains("left-recursive"));
  const Rule endless[] = {{"root", sequence({text("a"), call(0)})}};
  CHECK_THROWS_WITH(Grammar(endless, 10), Contains("no text fulfils it"));
  const Rule deep[] = {{"root", sequence({text("("), call(1), text(")")})},
                       {"inner", sequence({text("("), call(2), text(")")})},
                       {"core", text("x")}};
  CHECK_THROWS_WITH(Grammar(deep, 1), Contains("more than 1 deep"));
  CHECK(accepts(Grammar(deep, 2), "((x))"));
}

}  // namespace grammar_test
