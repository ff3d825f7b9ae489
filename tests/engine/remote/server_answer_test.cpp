// SPDX-License-Identifier: Apache-2.0
// The text and the ids of an answer that comes in pieces.
#include "engine/remote/server_api.h"

#include <catch2/catch.hpp>

#include "engine/base/errors.h"
#include "tests/support/folders.h"
#include "tests/support/tiny_model.h"

namespace server_answer_test {

using namespace baton;
using Catch::Matchers::Contains;

TEST_CASE("the ids of an answer are those before the stop text, and of what a cut token leaves") {
  const ModelText text = message_text();
  ServerAnswer answer(*text.tokenizer, nullptr, {"END"});
  const auto add = [&](const std::string& piece, std::vector<TokenId> ids) {
    ServerPiece one;
    one.text = piece;
    one.ids = std::move(ids);
    return answer.add(one);
  };
  CHECK(add("ab", {1}) == "ab");
  CHECK(add("cE", {2}) == "c");
  CHECK(add("ND!", {3}).empty());
  answer.end();
  CHECK(answer.text() == "abc");
  CHECK(answer.tokens() == std::vector<TokenId>{1, 'c'});
}

TEST_CASE("ids that a server leaves out are those of its whole text, wherever the pieces end") {
  const auto tokenizer =
      Tokenizer::parse(test::read_file(test::source_folder() / "samples/models/nano/tokenizer.json"), "nano");
  const std::string text = "Boiling an egg is a simple and effective method: 12 minutes.";
  const std::vector<TokenId> whole = tokenizer->encode_piece(text, SpecialTokens::as_text, tokenizer->start_inside());
  for (std::size_t size = 1; size <= text.size(); ++size) {
    ServerAnswer answer(*tokenizer, nullptr);
    for (std::size_t at = 0; at < text.size(); at += size) {
      ServerPiece piece;
      piece.text = text.substr(at, size);
      answer.add(piece);
    }
    answer.end();
    CHECK(answer.tokens() == whole);
  }
  // Between ids that it gives, only the text of the others is encoded.
  ServerAnswer answer(*tokenizer, nullptr);
  const std::vector<TokenId> inside =
      tokenizer->encode_piece(" method", SpecialTokens::as_text, tokenizer->start_inside());
  for (const auto& [part, ids] : std::vector<std::pair<std::string, std::vector<TokenId>>>{
           {"Bo", {11, 12}}, {" me", {}}, {"thod", {}}, {"!", {13}}, {" met", {}}, {"hod", {}}}) {
    ServerPiece piece;
    piece.text = part;
    piece.ids = ids;
    answer.add(piece);
  }
  std::vector<TokenId> expected = {11, 12};
  expected.insert(expected.end(), inside.begin(), inside.end());
  expected.push_back(13);
  expected.insert(expected.end(), inside.begin(), inside.end());
  CHECK(answer.tokens() == expected);
}

TEST_CASE("an error without words shows what there is") {
  CHECK(words_of_error(R"({"error": {"message": "", "type": "InternalServerError", "code": 500}})") ==
        R"(without words: {"error":{"code":500,"message":"","type":"InternalServerError"}})");
  CHECK(words_of_error(R"({"error": {"message": "no"}})") == "no");
}

TEST_CASE("an answer so far that becomes shorter is an error") {
  const ModelText text = message_text();
  ServerAnswer answer(*text.tokenizer, nullptr);
  ServerPiece piece;
  piece.whole = true;
  piece.text = "abc";
  piece.ids = {1, 2};
  CHECK(answer.add(piece) == "abc");
  piece.ids = {1};
  CHECK_THROWS_AS(answer.add(piece), ModelError);
  piece.ids = {1, 2};
  piece.text = "ab";
  CHECK_THROWS_AS(answer.add(piece), ModelError);
}

TEST_CASE("an id beyond the vocabulary is an error") {
  const ModelText text = message_text();
  ServerAnswer answer(*text.tokenizer, nullptr);
  ServerPiece piece;
  piece.text = "x";
  piece.ids = {text.tokenizer->size()};
  CHECK_THROWS_WITH(answer.add(piece), Contains("260"));
}

}  // namespace server_answer_test
