// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/thread_time.h"

namespace baton::text {
namespace {

const Where kWhere{"t.json", "model.vocab"};

TEST_CASE("a vocabulary keeps every token by its id, and views of them while it grows") {
  std::vector<std::string> tokens = {""};
  for (int i = 1; i < 40'000; ++i) tokens.push_back("token " + std::to_string(i));
  for (const std::size_t size : {1'000, 65'533, 65'534, 65'535, 65'536, 200'000}) tokens.emplace_back(size, 'x');

  Vocabulary vocabulary;
  std::vector<std::string_view> views;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(3 * i + 1);
    vocabulary.add(tokens[i], id, kWhere);
    vocabulary.add(tokens[i], id, kWhere);  // the same once more is no error
    views.push_back(*vocabulary.token(id));
  }
  REQUIRE(vocabulary.size() == static_cast<TokenId>(3 * (tokens.size() - 1) + 2));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(3 * i + 1);
    REQUIRE(vocabulary.id(tokens[i]) == id);
    REQUIRE(vocabulary.token(id) == tokens[i]);
    REQUIRE(views[i] == tokens[i]);
    REQUIRE_FALSE(vocabulary.token(id + 1).has_value());
  }
  CHECK_FALSE(vocabulary.id("token").has_value());
  CHECK_FALSE(vocabulary.id(std::string(65'532, 'x')).has_value());
  CHECK_FALSE(vocabulary.token(-1).has_value());
  CHECK_FALSE(vocabulary.token(vocabulary.size()).has_value());
}

TEST_CASE("tokens that meet in one place of the standard library's hash do not make a vocabulary slow") {
  constexpr std::size_t kTokens = 60'000, kSlots = 1 << 17;
  std::vector<std::string> tokens;
  for (std::size_t i = 0; tokens.size() < kTokens; ++i) {
    std::string token = std::to_string(i);
    if (std::hash<std::string_view>()(token) % kSlots < kSlots / 64) tokens.push_back(std::move(token));
  }
  const double begin = test::thread_seconds();
  Vocabulary vocabulary;
  for (std::size_t i = 0; i < kTokens; ++i) vocabulary.add(tokens[i], static_cast<TokenId>(i), kWhere);
  for (std::size_t i = 0; i < kTokens; ++i) REQUIRE(vocabulary.id(tokens[i]) == static_cast<TokenId>(i));
  CHECK(test::thread_seconds() - begin < 0.5 * test::slowdown());
}

TEST_CASE("a vocabulary refuses a token with two ids and an id with two tokens") {
  Vocabulary vocabulary;
  vocabulary.add("a", 3, kWhere);
  CHECK_THROWS_WITH(vocabulary.add("a", 4, kWhere), "t.json: model.vocab: the token 'a' has two ids, 3 and 4");
  CHECK_THROWS_WITH(vocabulary.add("b", 3, kWhere), "t.json: model.vocab: the id 3 belongs to two tokens, 'a' and 'b'");
}

}  // namespace
}  // namespace baton::text
