// SPDX-License-Identifier: Apache-2.0
#include "engine/base/token_text.h"

#include <catch2/catch.hpp>
#include <span>

namespace baton {

TEST_CASE("copies of a text share its ids, and equal texts are equal", "[text]") {
  const std::vector<std::int32_t> ids = {3, 1, 4};
  const TokenText text = ids, copy = text, other = ids;
  CHECK(copy.is(text));
  CHECK(copy.data() == text.data());
  CHECK_FALSE(other.is(text));
  CHECK(other == text);
  CHECK(text == ids);
  CHECK(ids == text);
  CHECK(text != TokenText({3, 1}));
  CHECK(std::span<const std::int32_t>(text).size() == 3);
}

TEST_CASE("all empty texts are one text", "[text]") {
  const TokenText none;
  CHECK(none.empty());
  CHECK(none.ids().empty());
  CHECK(none.is(std::vector<std::int32_t>()));
  CHECK(none != TokenText({1}));
}

}  // namespace baton
