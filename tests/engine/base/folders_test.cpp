// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/file.h"

#include <catch2/catch.hpp>

namespace baton {
namespace fs = std::filesystem;

TEST_CASE("names of files are UTF-8 in strings and paths") {
  for (const std::string name : {"plain.gguf", "two words", "\xc3\xa4\xe2\x82\xac.yaml", "\xf0\x9f\x98\x80 x"}) {
    CHECK(fs::path(name).string() == name);
    CHECK(fs::path(name) == fs::path(std::u8string(name.begin(), name.end())));
    CHECK((fs::path("a") / name).filename().string() == name);
  }
}

TEST_CASE("an address of a file is a path") {
  CHECK(path_of_address("/folder/x.gguf") == fs::path("/folder/x.gguf"));
  const bool drives = fs::path::preferred_separator != '/';
  CHECK(path_of_address("/C:/folder/x.gguf") == fs::path(drives ? "C:/folder/x.gguf" : "/C:/folder/x.gguf"));
  CHECK(path_of_address("/") == fs::path("/"));
}

}  // namespace baton
