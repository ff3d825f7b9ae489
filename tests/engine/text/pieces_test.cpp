// SPDX-License-Identifier: Apache-2.0
// Pieces of a text against the whole text, for the tokenizers of the goldens and for changes of them.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/random.h"
#include "engine/base/utf8.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/text_ids.h"
#include "engine/text/tokenizer.h"
#include "tests/support/golden_files.h"

namespace baton::test::pieces_test {
namespace {

using Ids = std::vector<TokenId>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

Ids ids_of_pieces(const TokenizerPtr& tokenizer, const std::vector<std::string>& pieces) {
  NextPiece next(*tokenizer);
  Ids all;
  for (const std::string& piece : pieces) {
    const TokenText ids = ids_of_text(nullptr, tokenizer, piece, TextIds::Kind::authored, next.start());
    next.follow(ids);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

Ids whole(const TokenizerPtr& tokenizer, const std::string& text) {
  return tokenizer->encode(text, SpecialTokens::recognise);
}

/// A tokenizer of the goldens, with other parts.
struct Subject {
  const char* name;
  const char* base;
  Json changes;
  std::vector<std::string> specials;

  Json json() const {
    Json made = golden_json("tokenizers/" + std::string(base) + ".json");
    for (const auto& [key, value] : changes.items()) made[key] = value;
    return made;
  }
};

const Json kMark = "\xE2\x96\x81";

Json metaspace(const char* scheme, bool split = false) {
  return {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", scheme}, {"split", split}};
}

std::vector<Subject> subjects() {
  const std::vector<std::string> phi = {"<|user|>", "<|end|>", "<|assistant|>", "<s>", "</s>"};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  const Json no_blank = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}};
  return {
      {"GPT-2", "gpt2", {}, {"<|endoftext|>"}},
      {"GPT-2 with a blank in front", "gpt2", {{"pre_tokenizer", bytes}}, {"<|endoftext|>"}},
      {"Llama 3", "llama3", {}, {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {"Qwen", "qwen", {}, {"<|im_start|>", "<|im_end|>", "<tool_call>"}},
      {"Llama 2 and Phi-3: a blank before each part", "sp_normalizer", {}, phi},
      {"Gemma: no blank", "sp_normalizer", {{"normalizer", no_blank}}, phi},
      {"Mistral 0.3: a blank before the text", "sp_metaspace", {}, {"<s>", "</s>"}},
      {"a blank before each part, by Metaspace", "sp_metaspace", {{"pre_tokenizer", metaspace("always")}}, {"<s>"}},
      {"a blank before each part, and words", "sp_metaspace", {{"pre_tokenizer", metaspace("always", true)}}, {"<s>"}},
      {"no blank, by Metaspace", "sp_metaspace", {{"pre_tokenizer", metaspace("never")}}, {"<s>"}},
  };
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next_random(state_) % bound); }
  template <typename List>
  const auto& of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::uint64_t state_;
};

/// A prompt of words, blanks and special tokens. No combining marks: normal forms join them across a cut.
std::string drawn_prompt(Draw& draw, const std::vector<std::string>& specials) {
  static const char* const kWords[] = {
      "Hello", " world",   " the", "\n",      "\n\n", "  ",     " ", "Question:", "don't",    " 1234", "a_b",
      "Größe", "天气很好", "。",   "😀",       "...",  "[INST]", "x", "\t",        " [",       "]\n",   "planner",
      " \n ",  "Привет",   "1",    "answers", "\r\n", ": ",     "(", ")",         "\xC2\xA0", "안녕"};
  std::string text;
  for (std::size_t count = 1 + draw.below(24); count > 0; --count)
    text += draw.below(5) == 0 ? draw.of(specials) : draw.of(kWords);
  return text;
}

/// Where the tokenizer itself cuts, whatever stands behind the cut: at special tokens, and between words.
class Cuts {
 public:
  explicit Cuts(const Subject& subject)
      : json_(subject.json()),
        specials_(subject.specials),
        words_(text::PreTokenizer::parse(text::find(json_, "pre_tokenizer", where_), where_)),
        by_bytes_(subject.base != std::string("sp_normalizer") && subject.base != std::string("sp_metaspace")) {}

  std::vector<std::size_t> of(const std::string& text) const {
    std::vector<std::size_t> cuts;
    for (std::size_t at = 0, begin = 0; at <= text.size(); ++at) {
      const auto special = std::find_if(specials_.begin(), specials_.end(), [&](const std::string& one) {
        return at < text.size() && text.compare(at, one.size(), one) == 0;
      });
      if (special == specials_.end() && at < text.size()) continue;
      const std::vector<std::size_t> inside = words_of(text.substr(begin, at - begin));
      for (const std::size_t cut : inside) cuts.push_back(begin + cut);
      if (special == specials_.end()) break;
      cuts.push_back(at);
      begin = at + special->size();
      cuts.push_back(begin);
      at = begin - 1;
    }
    return cuts;
  }

 private:
  /// The ends of words, if the same words are made of the text up to there.
  std::vector<std::size_t> words_of(const std::string& text) const {
    std::vector<std::size_t> cuts;
    if (!by_bytes_) return cuts;
    for (const std::size_t end : ends(text)) {
      const std::vector<std::size_t> all = ends(text), upto = ends(text.substr(0, end));
      if (end < text.size() && std::equal(upto.begin(), upto.end(), all.begin())) cuts.push_back(end);
    }
    return cuts;
  }

  /// The ends of all words, in bytes: in the alphabet of byte-level BPE a byte is a character.
  std::vector<std::size_t> ends(const std::string& text) const {
    text::Words words{text, {{0, text.size(), false, true}}};
    text::TextWork work("test", text.size());
    words_.apply(words, work);
    std::vector<std::size_t> ends;
    std::size_t end = 0;
    for (const text::Words::Word& word : words.words) {
      for (std::size_t at = word.begin; at < word.end; at += utf8::at(words.text, at).bytes) ++end;
      ends.push_back(end);
    }
    return ends;
  }

  Json json_;
  std::vector<std::string> specials_;
  text::Where where_{"test", ""};
  text::PreTokenizer words_;
  bool by_bytes_;
};

int words_in(const std::string& text) {
  int words = 0;
  bool blank = true;
  for (const char c : text) {
    const bool is_blank = c == ' ' || (c >= '\t' && c <= '\r');
    if (blank && !is_blank) ++words;
    blank = is_blank;
  }
  return words;
}

std::vector<std::string> cut_at(const std::string& text, const std::vector<std::size_t>& cuts) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) pieces.push_back(text.substr(begin, cut - begin)), begin = cut;
  pieces.push_back(text.substr(begin));
  return pieces;
}

}  // namespace

TEST_CASE("pieces that are cut where a tokenizer cuts have the ids of the whole text") {
  for (const Subject& subject : subjects()) {
    INFO(subject.name);
    const TokenizerPtr tokenizer = Tokenizer::parse(subject.json().dump(), subject.name);
    const Cuts all(subject);
    Draw draw(7);
    int cut = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::string text = drawn_prompt(draw, subject.specials);
      std::vector<std::size_t> cuts;
      for (const std::size_t one : all.of(text)) {
        if (draw.below(2) == 0) cuts.push_back(one);
      }
      cut += cuts.empty() ? 0 : 1;
      CAPTURE(text, cuts);
      REQUIRE(ids_of_pieces(tokenizer, cut_at(text, cuts)) == whole(tokenizer, text));
    }
    CHECK(cut > 700);
  }
}

TEST_CASE("pieces that are cut anywhere stand for the whole text, and differ from it at the cut alone") {
  for (const Subject& subject : subjects()) {
    INFO(subject.name);
    const TokenizerPtr tokenizer = Tokenizer::parse(subject.json().dump(), subject.name);
    Draw draw(8);
    int inside = 0, beyond = 0;
    for (int i = 0; i < 1000; ++i) {
      std::string text;
      while (text.size() < 2) text = drawn_prompt(draw, subject.specials);
      std::size_t cut = 1 + draw.below(text.size() - 1);
      while (utf8::continues(text[cut])) --cut;
      const bool in_special = std::any_of(subject.specials.begin(), subject.specials.end(), [&](const auto& one) {
        const std::size_t at = text.rfind(one, cut - 1);
        return at != std::string::npos && at + one.size() > cut;
      });
      if (cut == 0 || in_special) continue;
      const Ids expected = whole(tokenizer, text), ids = ids_of_pieces(tokenizer, cut_at(text, {cut}));
      CAPTURE(text, cut, expected, ids);
      REQUIRE(tokenizer->decode(ids, false) == tokenizer->decode(expected, false));
      if (ids == expected) continue;
      ++inside;
      const auto [own, other] = std::mismatch(ids.begin(), ids.end(), expected.begin(), expected.end());
      const auto other_end = std::mismatch(expected.rbegin(), expected.rend() - (other - expected.begin()),
                                           ids.rbegin(), ids.rend() - (own - ids.begin()))
                                 .first.base();
      if (other_end - other > 1) ++beyond;
      const auto length = [&](auto end) { return tokenizer->decode(Ids(expected.begin(), end), false).size(); };
      const std::string all = tokenizer->decode(expected, false);
      const std::size_t begin = length(other), end = length(other_end),
                        middle = tokenizer->decode(ids_of_pieces(tokenizer, {text.substr(0, cut)}), false).size();
      CAPTURE(begin, middle, end);  // some tokens of the goldens hold the end of one word and the next one
      CHECK(begin <= middle);
      CHECK(middle <= end);
      if (begin <= middle) CHECK(words_in(all.substr(begin, middle - begin)) <= 2);
      if (middle <= end) CHECK(words_in(all.substr(middle, end - middle)) <= 2);
    }
    CAPTURE(inside, beyond);
    CHECK(inside > 50);
    CHECK(beyond * 4 <= inside);  // a token that the cut divides may have kept its neighbours from merging
  }
}

TEST_CASE("a blank is put before a text, or before each part behind a special token, and before no other piece") {
  const auto tokens = [](const TokenizerPtr& tokenizer, const std::vector<std::string>& pieces) {
    std::vector<std::string> shown;
    for (const TokenId id : ids_of_pieces(tokenizer, pieces)) shown.push_back(tokenizer->token_bytes(id));
    std::string all;
    for (const std::string& one : shown) all += one.empty() ? "#" : one;
    return all;
  };
  const std::vector<std::string> pieces = {"<s>", "a", "b", " c", "</s>", "d", "\n", "e"};
  const auto made = [](const Subject& subject) { return Tokenizer::parse(subject.json().dump(), subject.name); };
  CHECK(tokens(made({"", "sp_normalizer", {}, {}}), pieces) == "# ab c# d\ne");
  CHECK(tokens(made({"", "sp_metaspace", {}, {}}), pieces) == "#ab c#d\ne");
  CHECK(tokens(made({"", "sp_metaspace", {}, {}}), {"a", "b"}) == " ab");
  CHECK(tokens(made({"", "sp_metaspace", {{"pre_tokenizer", metaspace("always")}}, {}}), pieces) == "# ab c# d\ne");
  CHECK(tokens(made({"", "sp_metaspace", {{"pre_tokenizer", metaspace("never")}}, {}}), pieces) == "#ab c#d\ne");
  CHECK(tokens(made({"", "gpt2", {}, {}}), pieces).find("ab c") != std::string::npos);
}

TEST_CASE("a special token takes the blanks of the piece behind it") {
  const TokenizerPtr tokenizer = Tokenizer::parse(golden_text("tokenizers/sp_normalizer.json"), "phi");
  const Ids expected = whole(tokenizer, "<|user|>\n hi<|end|>");
  CHECK(ids_of_pieces(tokenizer, {"<|user|>", "\n hi", "<|end|>"}) == expected);
  CHECK(ids_of_pieces(tokenizer, {"<|user|>\n", " ", "hi<|end|>"}) == expected);
  CHECK(ids_of_pieces(tokenizer, {"<|user|>", " hi\n", "x"}) == whole(tokenizer, "<|user|> hi\nx"));
}

TEST_CASE("texts are tokenized once for each start") {
  const TokenizerPtr tokenizer = Tokenizer::parse(golden_text("tokenizers/sp_normalizer.json"), "phi");
  TextIds texts;
  const PieceStart inside = tokenizer->start_inside();
  CHECK(inside != PieceStart{});
  const TokenText first = texts.of(tokenizer, "the plan", TextIds::Kind::data);
  const TokenText other = texts.of(tokenizer, "the plan", TextIds::Kind::data, inside);
  CHECK_FALSE(first == other);
  CHECK(texts.of(tokenizer, "the plan", TextIds::Kind::data, inside).is(other));
  CHECK(texts.of(tokenizer, "the plan", TextIds::Kind::data).is(first));
  const TokenizerPtr bytes = Tokenizer::parse(golden_text("tokenizers/gpt2.json"), "gpt2");
  CHECK(bytes->start_inside() == PieceStart{});
  CHECK(bytes->start_after(0) == PieceStart{});
}

}  // namespace baton::test::pieces_test
