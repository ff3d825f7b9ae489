// SPDX-License-Identifier: Apache-2.0
// The rules by which GGUF files' tokenizers cut words: against llama.cpp (tests/golden/make_words.py), and which of
// them a vocabulary fits. vocabularies.json has 600 tokens, evenly spread, of each of 13 published vocabularies.
#include "engine/model/word_rules.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/pretokenizer.h"
#include "tests/support/golden_files.h"

namespace baton::test::word_rules_test {
namespace {

/// The words' lengths in bytes, joined by blanks.
std::string cut(const text::PreTokenizer& rule, const std::string& text) {
  text::Words words{text, {{0, text.size()}}};
  text::TextWork work("test", text.size());
  rule.apply(words, work);
  std::string lengths;
  std::size_t at = 0;
  for (const text::Words::Word& word : words.words) {
    REQUIRE(word.begin == at);
    at = word.end;
    lengths += (lengths.empty() ? "" : " ") + std::to_string(word.end - word.begin);
  }
  REQUIRE(at == text.size());
  return lengths;
}

}  // namespace

TEST_CASE("each rule that llama.cpp knows cuts texts as it does") {
  const Json golden = golden_json("words/cuts.json");
  std::size_t names = 0, compared = 0;
  for (const Json& rule : golden["rules"]) {
    for (const Json& name : rule["names"]) {
      INFO(name.get<std::string>());
      const WordRule* own = find_word_rule(name.get<std::string>());
      REQUIRE(own != nullptr);
      ++names;
      const Json steps = word_steps(*own);
      const auto words = text::PreTokenizer::parse(&steps, text::Where{"test", ""});
      for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
        if (rule["words"][i].is_null()) continue;
        const std::string text = golden["texts"][i];
        INFO(text);
        CHECK(cut(words, text) == rule["words"][i].get<std::string>());
        ++compared;
      }
    }
  }
  CHECK(names + 1 == word_rules().size());  // but for "default"
  CHECK(compared > 10'000);
}

TEST_CASE("a vocabulary fits its own rule, and another rule is doubted if one fits much better") {
  for (const Json& vocabulary : golden_json("words/vocabularies.json")) {
    const std::string own = vocabulary["rule"], usual = vocabulary["usual"];
    INFO(vocabulary["name"].get<std::string>());
    const auto tokens = vocabulary["tokens"].get<std::vector<std::string>>();
    CHECK(cut_fraction(*find_word_rule(own), tokens) < 0.02);
    CHECK(better_rule(*find_word_rule(own), tokens, usual).rule == nullptr);
    const BetterRule better = better_rule(*find_word_rule("default"), tokens, usual);
    const double by_default = cut_fraction(*find_word_rule("default"), tokens);
    if (by_default < 0.02) {
      CHECK(better.rule == nullptr);
    } else {
      REQUIRE(better.rule != nullptr);
      CHECK(better.rule->name == own);
      CHECK(better.cut < 0.02);
      CHECK(better.given_cut == by_default);
    }
  }
}

TEST_CASE("a named rule that does not fit is doubted, too") {
  for (const Json& vocabulary : golden_json("words/vocabularies.json")) {
    const auto tokens = vocabulary["tokens"].get<std::vector<std::string>>();
    const auto better = [&](const char* rule) {
      const WordRule* found = better_rule(*find_word_rule(rule), tokens, "").rule;
      return found == nullptr ? "" : std::string(found->name);
    };
    if (vocabulary["name"] == "o200k") CHECK(better("llama-bpe") == "gpt-4o");
    if (vocabulary["name"] == "cl100k") CHECK(better("smollm") == "llama-bpe");
    if (vocabulary["name"] == "qwen") CHECK(better("llama-bpe").empty());  // the same ids: it has no longer numbers
  }
}

TEST_CASE("rules that hardly cut anything are told apart from none") {
  CHECK(find_word_rule("no-such") == nullptr);
  CHECK(cut_fraction(*find_word_rule("qwen2"), {}) == 0.0);
  CHECK(better_rule(*find_word_rule("qwen2"), {}, "").rule == nullptr);
  const std::vector<std::string> digits(100, "1234");
  CHECK(cut_fraction(*find_word_rule("smollm"), digits) == 1.0);
  CHECK(cut_fraction(*find_word_rule("gpt-2"), digits) == 0.0);
  CHECK(better_rule(*find_word_rule("smollm"), digits, "").rule->name == "gpt-2");
}

}  // namespace baton::test::word_rules_test
