// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "engine/base/utf8.h"

namespace utf8_count_test {

using namespace baton;

TEST_CASE("characters are counted by the bytes that begin one") {
  CHECK(utf8::count("") == 0);
  CHECK(utf8::count("abc") == 3);
  CHECK(utf8::count("aé€😀") == 4);
  CHECK(utf8::continues('\x80'));
  CHECK(utf8::continues('\xBF'));
  CHECK_FALSE(utf8::continues('\xC3'));
  CHECK_FALSE(utf8::continues('\x7F'));
}

}  // namespace utf8_count_test
