// SPDX-License-Identifier: Apache-2.0
#include "engine/base/hash.h"

#include <catch2/catch.hpp>
#include <string_view>

namespace hash_test {

using namespace baton;

TEST_CASE("hashes have the values of their specifications") {
  CHECK(hash_bytes("", 0) == 0x2d06800538d394c2u);  // XXH3
  std::uint64_t fnv = kFnvStart;
  CHECK(fnv == 14695981039346656037u);
  CHECK(fnv1a(fnv, 'a') == 0xaf63dc4c8601ec8cu);
  for (const char c : std::string_view("foobar")) fnv = fnv1a(fnv, static_cast<unsigned char>(c));
  CHECK(fnv == 0x85944171f73967e8u);
  CHECK(hash_bytes("ab", 2, 1) != hash_bytes("ab", 2));
}

TEST_CASE("a stream's hash does not depend on where its parts end") {
  const std::string_view text = "handed on, token by token";
  StreamHash whole, parts;
  CHECK(whole.hex() == "99aa06d3014798d86001c324468d497f");  // of nothing
  whole.add(text.data(), text.size());
  parts.add(text.data(), 7);
  CHECK(parts.hex() != whole.hex());
  parts.add(text.data() + 7, text.size() - 7);
  CHECK(parts.hex() == whole.hex());
}

}  // namespace hash_test
