// SPDX-License-Identifier: Apache-2.0
// Masks of tokens against brute force: each token's text is tried on the grammar by itself.
#include "engine/text/constrain/token_masks.h"

#include <catch2/catch.hpp>
#include <random>

#include "engine/base/utf8.h"
#include "tests/support/golden_files.h"

namespace token_masks_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr const char* kTokenizers[] = {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"};

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& name) {
  return Tokenizer::parse(golden_text("tokenizers/" + name + ".json"), name);
}

std::vector<std::shared_ptr<const Grammar>> grammars() {
  return {
      regex_grammar(" ?([A-Za-z]+( [a-z]+){0,3}|[0-9]{1,4})!?"),
      regex_grammar(".{0,6}"),
      enum_grammar(std::vector<std::string>{"yes", " yes", "no", "the answer", "\xc3\xa9t\xc3\xa9 \xe2\x82\xac"}),
      schema_grammar(R"({"properties": {"name": {"type": "string", "maxLength": 5}, "n": {"type": "integer"},
                         "of": {"type": "array", "items": {"enum": ["a", "the", null]}, "maxItems": 2}}})"),
      gbnf_grammar(
          "root ::= sum\nsum ::= item (\" + \" item){0,2}\nitem ::= [0-9]{1,2} | \"(\" sum \")\" | \" the\"\n"),
  };
}

/// True when a text of the grammar begins so.
bool begins(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarStates states(grammar);
  GrammarStates::State* state = states.start();
  for (const char byte : text) {
    state = states.next(state, static_cast<std::uint8_t>(byte));
    if (state->dead()) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("masks allow exactly the tokens whose text can go on to a text of the grammar", "[constrain]") {
  std::size_t compared = 0, allowed_count = 0, ended = 0;
  for (const char* name : kTokenizers) {
    const auto tokenizer = tokenizer_of(name);
    const TokenId eos = tokenizer->size() - 1;
    const std::int32_t size = tokenizer->size() + 40;  // published models have more rows than tokens
    const auto vocabulary = std::make_shared<const MaskVocabulary>(*tokenizer, size, std::span(&eos, 1));
    int number = 0;
    for (const auto& grammar : grammars()) {
      INFO(name << ", grammar " << ++number);
      const auto masks = std::make_shared<TokenMasks>(grammar, vocabulary, 4096);  // some masks are dropped
      for (unsigned seed = 0; seed < 4; ++seed) {
        std::mt19937 random(seed);
        AnswerMatcher matcher(masks);
        std::vector<TokenId> ids;
        for (int step = 0; step < 25 && !matcher.complete(); ++step) {
          const TokenMask row = matcher.allowed();
          const std::vector<std::uint32_t> mask(row.begin(), row.end());
          REQUIRE(mask.size() * 32 >= static_cast<std::size_t>(size));
          const std::string before = tokenizer->decode(ids, true);
          std::vector<TokenId> possible;
          for (TokenId id = 0; id < size; ++id) {
            const bool allowed = allows(mask, id);
            if (id == eos) {
              if (before.find(utf8::kReplacement) == before.npos) CHECK(allowed == accepts(*grammar, before));
              continue;
            }
            if (allowed) possible.push_back(id);
            if (id >= tokenizer->size() || tokenizer->is_special(id) || tokenizer->token_bytes(id).empty()) {
              if (allowed) FAIL("token " << id << " stands for no text");
              continue;
            }
            // Parts of characters have no text of their own; they are checked by the answer as a whole.
            std::vector<TokenId> with = ids;
            with.push_back(id);
            const std::string text = tokenizer->decode(with, true);
            if (text.find(utf8::kReplacement) != text.npos || before.find(utf8::kReplacement) != before.npos) continue;
            ++compared;
            allowed_count += allowed ? 1 : 0;
            if (text == before) continue;  // a blank that the tokenizer drops at the beginning
            if (allowed != begins(grammar, text))
              FAIL("token " << id << " behind '" << before << "': '" << text << "'");
          }
          if (possible.empty()) break;
          const TokenId next = possible[random() % possible.size()];
          AnswerMatcher copy = matcher;
          REQUIRE(copy.take(next));
          REQUIRE(matcher.take(next));  // the copy went its own way
          ids.push_back(next);
        }
        const std::string text = tokenizer->decode(ids, true);
        if (!matcher.ends()) continue;
        ++ended;
        if (!accepts(*grammar, text)) FAIL("not a text of the grammar: '" << text << "'");
      }
    }
  }
  CHECK(compared > 100'000);
  CHECK(allowed_count > 5'000);
  CHECK(ended > 50);
}

TEST_CASE("a mask allows exactly the tokens whose bytes lead on, also parts of characters and broken ones",
          "[constrain]") {
  const auto tokenizer = tokenizer_of("gpt2");
  const TokenId none = -1;
  auto vocabulary = std::make_shared<MaskVocabulary>(*tokenizer, 6000, std::span(&none, 1));
  const std::string pieces[] = {"a",
                                "b",
                                "\"",
                                "\\",
                                "\n",
                                "\xC3\xA9",
                                "\xE6\xBC\xA2",
                                "\xED\x9F\xBF",
                                "\xE2",
                                "\xBC",
                                "\xC0",
                                "\xF4\x90",
                                "\xF0\x9F\x98\x80",
                                "\xF0\x9F"};
  std::mt19937 random(5);
  TokenBytes bytes;
  for (TokenId id = 0; id < vocabulary->size; ++id) {
    std::string token;
    const unsigned length = 1 + random() % 5;
    const bool valid = random() % 3 != 0;  // many that are whole characters, so that they are allowed together
    for (unsigned i = 0; i < length; ++i) token += pieces[valid ? 5 * (random() % 2) + random() % 2 : random() % 14];
    if (random() % 8 == 0) token.pop_back();
    bytes.add(token);
  }
  vocabulary->later = vocabulary->first = std::make_shared<const TokenTrie>(bytes);

  std::size_t allowed_count = 0, refused = 0;
  for (const auto& grammar : {
           schema_grammar(R"({"type": "string", "minLength": 3, "maxLength": 9})"),
           schema_grammar(R"({"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3})"),
           schema_grammar(R"({"type": "string"})"),
           regex_grammar("[^\\u6f22]*"),
           regex_grammar("[ab\\u00e9]{0,20}"),
       }) {
    const auto masks = std::make_shared<TokenMasks>(grammar, vocabulary);
    for (unsigned seed = 0; seed < 6; ++seed) {
      random.seed(seed);
      AnswerMatcher matcher(masks);
      std::string before;
      for (int step = 0; step < 12 && !matcher.complete(); ++step) {
        const TokenMask mask = matcher.allowed();
        std::vector<TokenId> possible;
        for (TokenId id = 0; id < vocabulary->size; ++id) {
          const std::string_view token = bytes.of(id);
          const bool allowed = allows(mask, id);
          (allowed ? allowed_count : refused) += 1;
          if (allowed) possible.push_back(id);
          if (allowed != (!token.empty() && begins(grammar, before + std::string(token))))
            FAIL("token " << id << " of " << token.size() << " bytes behind " << before.size());
        }
        if (possible.empty()) break;
        const TokenId next = possible[random() % possible.size()];
        REQUIRE(matcher.take(next));
        before += bytes.of(next);
      }
    }
  }
  CHECK(allowed_count > 100'000);
  CHECK(refused > 100'000);
}

TEST_CASE("a matcher refuses tokens that are not allowed, and can begin again", "[constrain]") {
  const auto tokenizer = tokenizer_of("gpt2");
  const TokenId eos = *tokenizer->token_id("<|endoftext|>");
  const auto vocabulary = std::make_shared<const MaskVocabulary>(*tokenizer, tokenizer->size(), std::span(&eos, 1));
  AnswerMatcher matcher(std::make_shared<TokenMasks>(regex_grammar("ab+"), vocabulary));
  const TokenId a = tokenizer->encode("a", SpecialTokens::as_text)[0],
                b = tokenizer->encode("b", SpecialTokens::as_text)[0];
  CHECK_FALSE(matcher.take(b));
  CHECK_FALSE(matcher.take(eos));
  CHECK_FALSE(matcher.take(-1));
  CHECK_FALSE(matcher.take(1'000'000));
  CHECK(matcher.take(a));
  CHECK_FALSE(allows(matcher.allowed(), eos));
  CHECK(matcher.take(b));
  CHECK(matcher.ends());
  CHECK_FALSE(matcher.complete());
  CHECK(allows(matcher.allowed(), eos));
  matcher.restart();
  CHECK_FALSE(matcher.take(b));
  CHECK(matcher.take(a));
}

TEST_CASE("an expression whose states double with each repetition ends in an error, not in a long step",
          "[constrain]") {
  const auto tokenizer = tokenizer_of("llama3");
  const auto vocabulary =
      std::make_shared<const MaskVocabulary>(*tokenizer, tokenizer->size(), std::span<const TokenId>());
  std::string regex = "(.*a.{40}|";
  for (int i = 0; i < 60; ++i) regex += ".*[aeiou].{" + std::to_string(i) + "}[a-m]|";
  AnswerMatcher matcher(std::make_shared<TokenMasks>(regex_grammar(regex + "x)"), vocabulary));
  std::mt19937 random(5);
  try {
    for (int step = 0; step < 40; ++step) {
      const TokenMask mask = matcher.allowed();
      std::vector<TokenId> possible;
      for (TokenId id = 0; id < tokenizer->size(); ++id)
        if (allows(mask, id)) possible.push_back(id);
      REQUIRE_FALSE(possible.empty());
      REQUIRE(matcher.take(possible[random() % possible.size()]));
    }
  } catch (const std::runtime_error& error) {
    CHECK_THAT(error.what(), Catch::Contains("the answer's constraint"));
  }
}

TEST_CASE("a special token is allowed exactly where the grammar names it, and its spelling is a text", "[constrain]") {
  using namespace constrain;
  const auto tokenizer = tokenizer_of("qwen");
  const TokenId eos = tokenizer->size() - 1, special = tokenizer->token_id("<|im_start|>").value();
  REQUIRE(tokenizer->is_special(special));
  const auto vocabulary = std::make_shared<const MaskVocabulary>(*tokenizer, tokenizer->size(), std::span(&eos, 1));
  const ExpressionPtr any = repeat(characters(CodePointSet().complement()), 0, 100);
  const std::vector<Rule> rules = {{"all", sequence({any, text(special_text("<|im_start|>")), text("b")})}};
  const auto masks = std::make_shared<TokenMasks>(std::make_shared<const Grammar>(rules), vocabulary);
  AnswerMatcher matcher(masks);
  for (const TokenId id : tokenizer->encode("<|im_start|>", SpecialTokens::as_text)) REQUIRE(matcher.take(id));
  CHECK_FALSE(allows(matcher.allowed(), eos));
  CHECK(allows(matcher.allowed(), special));
  for (TokenId id = 0; id < tokenizer->size(); ++id) {
    if (tokenizer->is_special(id) && id != special) CHECK_FALSE(allows(matcher.allowed(), id));
  }
  REQUIRE(matcher.take(special));
  CHECK_FALSE(allows(matcher.allowed(), special));
  for (const TokenId id : tokenizer->encode("b", SpecialTokens::as_text)) REQUIRE(matcher.take(id));
  CHECK(matcher.ends());
  CHECK(allows(matcher.allowed(), eos));
}

}  // namespace token_masks_test
