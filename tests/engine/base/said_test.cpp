// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "engine/base/utf8.h"

namespace said_test {

using namespace baton;

TEST_CASE("a server's own words are one line without control characters") {
  CHECK(said("  a\n\x1b[31mb\tc\x7f ") == "a  [31mb c");
  CHECK(said(std::string(1000, 'x')).size() == 403);
  CHECK(said("\xff\xfe").find('\xff') == std::string::npos);
  CHECK(said("a\u009bb\u2028c\u202ed\u00e9") == "a b c d\u00e9");
  CHECK(said(" \n").empty());
}

}  // namespace said_test
