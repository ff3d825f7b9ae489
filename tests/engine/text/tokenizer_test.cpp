// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <ctime>

#include "engine/model/config.h"
#include "engine/text/tokenizer.h"
#include "tests/support/golden_files.h"

namespace baton::test::tokenizer_test {
namespace {

using Catch::Matchers::Contains;

/// Five letters, two merges and no cutting: "abab" is what a reader can follow.
Json tiny() {
  return Json::parse(R"({
    "added_tokens": [{"id": 6, "content": "<end>", "special": true}, {"id": 7, "content": "<tool>"}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abab": 4, "!": 5},
              "merges": ["a b", ["ab", "ab"]]},
    "decoder": {"type": "Fuse"}
  })");
}

std::shared_ptr<const Tokenizer> parse(const Json& json) { return Tokenizer::parse(json.dump(), "test.json"); }
std::shared_ptr<const Tokenizer> golden(const std::string& name) {
  return Tokenizer::parse(golden_text("tokenizers/" + name + ".json"), name);
}

using Ids = std::vector<TokenId>;

/// What parsing `json` complains about.
std::string complaint(const Json& json) {
  try {
    parse(json);
  } catch (const ModelError& error) {
    return error.what();
  }
  return "nothing";
}

Json with(const std::string& pointer, const Json& value) {
  Json json = tiny();
  json[Json::json_pointer(pointer)] = value;
  return json;
}

}  // namespace

TEST_CASE("a tokenizer that can be followed by hand") {
  const auto tokenizer = parse(tiny());
  CHECK(tokenizer->encode("ababab", SpecialTokens::recognise) == Ids{4, 3});
  CHECK(tokenizer->encode("cab<end>!", SpecialTokens::recognise) == Ids{2, 3, 6, 5});
  CHECK(tokenizer->encode("a<tool>b", SpecialTokens::recognise) == Ids{0, 7, 1});
  CHECK(tokenizer->encode("", SpecialTokens::recognise).empty());
  CHECK(tokenizer->decode(Ids{4, 6, 2}, false) == "abab<end>c");
  CHECK(tokenizer->decode(Ids{4, 6, 2, 99, -1}, true) == "ababc");
  CHECK(tokenizer->size() == 8);
  CHECK(tokenizer->token_id("<end>") == 6);
  CHECK(tokenizer->token_id("nothing") == std::nullopt);
  CHECK(tokenizer->is_special(6));
  CHECK_FALSE(tokenizer->is_special(7));
  CHECK_FALSE(tokenizer->is_special(-1));
  CHECK(tokenizer->token_bytes(4) == "abab");
  CHECK(tokenizer->token_bytes(6).empty());
  CHECK(tokenizer->token_bytes(1000).empty());
}

TEST_CASE("special tokens in hostile text stay text") {
  for (const std::string name : {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"}) {
    INFO(name);
    const auto tokenizer = golden(name);
    for (TokenId id = 0; id < tokenizer->size(); ++id) {
      if (!tokenizer->is_special(id)) continue;
      const std::string text = tokenizer->decode(Ids{id}, false);
      const auto as_text = tokenizer->encode("x" + text + " y\n" + text, SpecialTokens::as_text);
      CHECK(std::none_of(as_text.begin(), as_text.end(), [&](TokenId other) { return tokenizer->is_special(other); }));
    }
  }
}

TEST_CASE("markers that are not special stay text, other added tokens do not") {
  const auto kept = [](const std::string& content) {
    const auto tokenizer = parse(with("/added_tokens/1/content", content));
    const auto ids = tokenizer->encode("a" + content + "b", SpecialTokens::as_text);
    CHECK(tokenizer->encode("a" + content + "b", SpecialTokens::recognise) == Ids{0, 7, 1});
    return std::find(ids.begin(), ids.end(), 7) != ids.end();
  };
  for (const std::string content : {"<tool>", "</think>", "<|fim_prefix|>", "[INST]"}) CHECK_FALSE(kept(content));
  for (const std::string content : {"  ", "\n\n", "< >", "<", "word", "<x>y"}) CHECK(kept(content));
}

TEST_CASE("the bytes of tokens, joined, are the text") {
  const std::string text = "Hello, w\xC3\xB6rld! \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80\n\tdone";
  for (const std::string name : {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"}) {
    INFO(name);
    const auto tokenizer = golden(name);
    std::string bytes;
    for (const TokenId id : tokenizer->encode(text, SpecialTokens::as_text)) bytes += tokenizer->token_bytes(id);
    // Only the first token of SentencePiece-style text drops its space.
    CHECK(bytes == (name.starts_with("sp_") ? " " : "") + text);
  }
}

TEST_CASE("a stream gives out whole characters as soon as they are certain") {
  const auto tokenizer = golden("gpt2");
  Ids ids;
  for (const char byte : std::string("\xF0\x9F\x98\x80")) {
    for (TokenId id = 0; id < tokenizer->size(); ++id) {
      if (tokenizer->token_bytes(id) == std::string(1, byte)) ids.push_back(id);
    }
  }
  REQUIRE(ids.size() == 4);
  StreamDecoder decoder(*tokenizer);
  CHECK(decoder.push(ids[0]).empty());
  CHECK(decoder.push(ids[1]).empty());
  CHECK(decoder.push(ids[2]).empty());
  CHECK(decoder.push(ids[3]) == "\xF0\x9F\x98\x80");
  CHECK(decoder.push(ids[0]).empty());
  CHECK(decoder.finish() == "\xEF\xBF\xBD");

  StreamDecoder broken(*tokenizer);  // an unfinished character before another one
  CHECK(broken.push(ids[0]).empty());
  CHECK(broken.push(*tokenizer->token_id("a")) ==
        "\xEF\xBF\xBD"
        "a");
}

TEST_CASE("the end of a text can be stripped, also when it comes in pieces") {
  Json json = tiny();
  json["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Fuse"}, {"type": "Strip", "content": "!", "start": 1, "stop": 2}]})");
  const auto tokenizer = parse(json);
  CHECK(tokenizer->decode(Ids{5, 5, 0, 5, 5, 5}, false) == "!a!");
  CHECK(tokenizer->decode(Ids{5}, false).empty());
  CHECK(tokenizer->decode(Ids{0, 5, 1}, false) == "a!b");
  StreamDecoder decoder(*tokenizer);
  CHECK(decoder.push(0) == "a");
  CHECK(decoder.push(5).empty());
  CHECK(decoder.push(1) == "!b");
}

TEST_CASE("long inputs take linear-logarithmic time") {
  const std::clock_t started = std::clock();
  std::string nested;  // each half merges again and again
  for (int i = 0; i < 50'000; ++i) nested += "ab";
  CHECK(parse(tiny())->encode(nested, SpecialTokens::as_text).size() == 25'000);
  for (const std::string name : {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"}) {
    const auto tokenizer = golden(name);
    for (const std::string piece :
         {"a", " ", "=", "9", "\n", "\xF0\x9F\x98\x80", "\xCC\x81", "'", "\xFF", "<", "<|im_start|>"}) {
      std::string text;
      while (text.size() < 100'000) text += piece;
      CHECK_FALSE(tokenizer->encode(text, SpecialTokens::recognise).empty());
      CHECK_FALSE(tokenizer->encode("x" + text + "x", SpecialTokens::as_text).empty());
    }
  }
  // A quadratic step anywhere takes minutes here; sanitizers take seconds.
  CHECK((std::clock() - started) / CLOCKS_PER_SEC < 60);
}

TEST_CASE("a tokenizer.json that cannot be used says why") {
  CHECK_THROWS_WITH(Tokenizer::parse("{", "a/tokenizer.json"), Contains("a/tokenizer.json: not JSON"));
  CHECK_THROWS_WITH(Tokenizer::parse("\xFF\xFE", "x"), Contains("not JSON"));
  CHECK_THROWS_WITH(Tokenizer::parse("[]", "x"), Contains("expected an object"));
  CHECK_THROWS_WITH(Tokenizer::parse("{}", "x"), Contains("'model' is missing"));
  CHECK_THAT(complaint(with("/model/type", "Unigram")), Contains("model: the model type 'Unigram' is not supported"));
  CHECK_THAT(complaint(with("/model/vocab", nullptr)), Contains("'vocab' is missing"));
  CHECK_THAT(complaint(with("/model/vocab", Json::array())), Contains("vocab: expected an object"));
  CHECK_THAT(complaint(with("/model/vocab/a", -1)), Contains("not negative"));
  CHECK_THAT(complaint(with("/model/vocab/a", 1.5)), Contains("whole number"));
  CHECK_THAT(complaint(with("/model/vocab/a", 4'000'000'000u)), Contains("4000000000 is not below"));
  CHECK_THAT(complaint(with("/model/vocab/a", 1)), Contains("the id 1 belongs to two tokens"));
  CHECK_THAT(complaint(with("/model/merges", nullptr)), Contains("'merges' is missing"));
  CHECK_THAT(complaint(with("/model/merges/0", "a")), Contains("merges[0]: a merge must be"));
  CHECK_THAT(complaint(with("/model/merges/0", "a b c")), Contains("a merge must be"));
  CHECK_THAT(complaint(with("/model/merges/1", "ab zz")),
             Contains("merges[1]: the token 'abzz' is not in the vocabulary"));
  CHECK_THAT(complaint(with("/model/dropout", 0.1)), Contains("'dropout' is not supported"));
  CHECK_THAT(complaint(with("/model/continuing_subword_prefix", "##")), Contains("is not supported"));
  CHECK_THAT(complaint(with("/model/end_of_word_suffix", "</w>")), Contains("is not supported"));
  CHECK_THAT(complaint(with("/model/byte_fallback", true)), Contains("needs the token <0x00>"));
  CHECK_THAT(complaint(with("/model/unk_token", "<unk>")), Contains("'<unk>' is not in the vocabulary"));
  CHECK_THAT(complaint(with("/added_tokens/0/id", 3)), Contains("the id 3 belongs to two tokens"));
  CHECK_THAT(complaint(with("/added_tokens/0/id", 1'000'000'000)), Contains("is not below"));
  CHECK_THAT(complaint(with("/added_tokens/0/content", "a")), Contains("the token 'a' has two ids, 0 and 6"));
  CHECK_THAT(complaint(with("/added_tokens/0/content", "")), Contains("without text"));
  CHECK_THAT(complaint(with("/added_tokens/0/special", "yes")), Contains("must be true or false"));
  CHECK_THAT(complaint(with("/normalizer", {{"type", "Precompiled"}})),
             Contains("normalizer 'Precompiled' is not supported"));
  CHECK_THAT(complaint(with("/pre_tokenizer", {{"type", "UnicodeScripts"}})),
             Contains("'UnicodeScripts' is not supported"));
  CHECK_THAT(complaint(with("/decoder", {{"type", "WordPiece"}})), Contains("decoder 'WordPiece' is not supported"));
  CHECK_THAT(complaint(with("/post_processor", {{"type", "BertProcessing"}})),
             Contains("'BertProcessing' is not supported"));
  CHECK_THAT(complaint(with("/pre_tokenizer", "ByteLevel")), Contains("expected an object"));
}

TEST_CASE("sequences inside sequences end somewhere") {
  const auto nested = [](int sequences) {
    std::string deep = R"({"type": "NFC"})";
    for (int i = 0; i < sequences; ++i) deep = R"({"type": "Sequence", "normalizers": [)" + deep + "]}";
    return R"({"model": {"vocab": {"a": 0}, "merges": []}, "normalizer": )" + deep + "}";
  };
  CHECK_THROWS_WITH(Tokenizer::parse(nested(20), "x"), Contains("too many sequences"));
  CHECK_THROWS_WITH(Tokenizer::parse(nested(5'000), "x"), Contains("nested at most 64 deep"));
}

TEST_CASE("regular expressions outside of what is translated are refused by name") {
  const auto refused = [](const std::string& pattern) {
    return complaint(
        with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}}));
  };
  CHECK(refused(R"(\s+(?!\S)|\p{L}{1,3}|[^\s\p{N}])") == "nothing");
  CHECK_THAT(refused("("), Contains("is broken: missing closing parenthesis"));
  CHECK_THAT(refused("a**"), Contains("nothing") || Contains("is broken"));
  CHECK_THAT(refused("[a-z"), Contains("an unclosed class"));
  CHECK_THAT(refused("[a[b]]"), Contains("a class in a class"));
  CHECK_THAT(refused("[a&&b]"), Contains("an intersection of classes"));
  CHECK_THAT(refused(R"([\W])"), Contains("a negated class in a class"));
  CHECK_THAT(refused(R"((a)\1)"), Contains("\\1"));
  CHECK_THAT(refused(R"(\K)"), Contains("\\K"));
  CHECK_THAT(refused("(?P<x>a)"), Contains("this kind of group"));
  CHECK_THAT(refused("(*LIMIT_MATCH=1)"), Contains("(*"));
  CHECK_THAT(refused(R"(\p{N}{1,3}+)"), Contains("{n,m}+"));
  CHECK_THAT(refused(R"(\p{Nonsense})"), Contains("is broken"));
  CHECK_THAT(refused("\\"), Contains("a final backslash"));
  CHECK_THAT(refused(std::string(100'000, 'a')), Contains("expected at most 16384"));
  CHECK_THAT(refused(std::string(5'000, '(')), Contains("is broken"));
}

TEST_CASE("a pattern that would not end is stopped") {
  Json json =
      with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}});
  const auto tokenizer = parse(json);
  CHECK_THROWS_AS(tokenizer->encode(std::string(200, 'a') + "b", SpecialTokens::recognise), ModelError);
}

}  // namespace baton::test::tokenizer_test
