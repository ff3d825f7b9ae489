// SPDX-License-Identifier: Apache-2.0
#include "engine/base/utf8.h"

#include <catch2/catch.hpp>

namespace edit_distance_test {

using namespace baton;

TEST_CASE("the edit distance counts insertions, deletions, substitutions and swaps of neighbours") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("mian", "main") == 1);
  CHECK(edit_distance("ca", "abc") == 3);  // optimal string alignment: nothing is edited twice
  CHECK(edit_distance("flaw", "lawn") == 2);
}

}  // namespace edit_distance_test
