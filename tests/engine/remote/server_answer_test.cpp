// SPDX-License-Identifier: Apache-2.0
// The text and the ids of an answer that comes in pieces.
#include "engine/remote/server_api.h"

#include <catch2/catch.hpp>

#include "engine/base/errors.h"

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
