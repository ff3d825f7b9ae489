// SPDX-License-Identifier: Apache-2.0
// A grammar written as GBNF and read again has the same texts.
#include <catch2/catch.hpp>

#include "engine/text/constrain/grammar.h"

namespace gbnf_writer_test {

using namespace baton;

namespace {

void same_texts(const Grammar& grammar, const std::vector<std::string>& texts) {
  const auto again = gbnf_grammar(gbnf_of(grammar));
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(accepts(*again, text) == accepts(grammar, text));
  }
}

}  // namespace

TEST_CASE("regular expressions and lists of texts are written as GBNF") {
  const auto regex = regex_grammar(R"((yes|no) [0-9]{2,3}[^a-z"\\]\u00e9?x*)");
  REQUIRE(accepts(*regex, "no 123A"));
  same_texts(*regex, {"yes 12A", "no 123A", "no 1234A", "yes 1A", "yes 12a", "yes 12\xC3\xA9", "yes 12A\xC3\xA9xxx",
                      "yes 12\"", "yes 12\xF0\x9F\xA6\x8A", "yes 12\n", ""});
  const std::vector<std::string> texts = {"a \"quoted\" one", "back\\slash", "line\nend", "\xC3\xA9t\xC3\xA9", "[x]-^"};
  std::vector<std::string> tried = texts;
  tried.insert(tried.end(), {"", "a", "line", "x"});
  same_texts(*enum_grammar(texts), tried);
}

TEST_CASE("schemas are written as GBNF") {
  const auto schema = schema_grammar(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array","items":{"type":"string"},"maxItems":2},)"
      R"("c":{"enum":["x","y"]}},"required":["b"]})");
  std::vector<std::string> texts = {R"({"b":[]})",
                                    R"({"a":1,"b":["q\n"],"c":"x"})",
                                    R"({"a":1,"b":[]})",
                                    R"({"b":[],"c":"y"})",
                                    R"({"a":1})",
                                    R"({"b":[],"a":1})",
                                    R"({"b":[],"c":"z"})",
                                    "{}",
                                    R"({"a":1,"b":["1","2","3"]})"};
  for (const std::size_t i : {0u, 4u}) {
    std::string spaced = texts[i];
    for (std::size_t at = 0; (at = spaced.find_first_of(":,", at)) != std::string::npos; at += 2)
      spaced.insert(at + 1, " ");
    texts.push_back(spaced);
  }
  int accepted = 0;
  for (const std::string& text : texts) accepted += accepts(*schema, text) ? 1 : 0;
  REQUIRE(accepted > 0);
  same_texts(*schema, texts);
  same_texts(Grammar(*schema, *regex_grammar("other")), {"other", R"({"b":[]})", R"({"b": []})", "neither"});
}

TEST_CASE("a long text with escapes is written as bounded runs of characters") {
  const auto schema = schema_grammar(R"({"type":"string","minLength":1,"maxLength":240})");
  const std::string written = gbnf_of(*schema);
  CHECK(written.find("]{0,240}") != std::string::npos);
  CHECK(written.find("){1,240}") == std::string::npos);
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  const std::string most(240, 'a');
  same_texts(*schema, {quoted(""), quoted("a"), quoted("\\n"), quoted(most), quoted(most + "a"), quoted("a\\nb\\\"c"),
                       quoted("\\x"), "a"});
  CHECK(accepts(*gbnf_grammar(written), quoted(most + "\\n" + most)));  // it is checked behind
}

TEST_CASE("a grammar with rules that call themselves is written as GBNF") {
  const auto grammar = gbnf_grammar("root ::= \"(\" root \")\" | [a-c]+ (\",\" [0-9]){0,2}");
  same_texts(*grammar, {"a", "((abc))", "(a", "a,1", "a,1,2", "a,1,2,3", "", "()"});
}

TEST_CASE("an escaped character is written alike for readers of two hexadecimal digits and of any number") {
  const std::vector<std::string> texts = {"\"b\"", "a]b[c^d-e",
                                          "\\f\x01"
                                          "1"};
  const std::string written = gbnf_of(*enum_grammar(texts));
  CHECK(written.find("\\u0022b\\u0022") != std::string::npos);
  CHECK(written.find("\\x") == std::string::npos);
  same_texts(*enum_grammar(texts), texts);
}

}  // namespace gbnf_writer_test
