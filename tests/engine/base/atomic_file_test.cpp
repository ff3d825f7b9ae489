// SPDX-License-Identifier: Apache-2.0
#include "engine/base/atomic_file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "tests/support/temp_folder.h"

using namespace baton;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::ptrdiff_t files_in(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("a file appears when it is committed, and replaces what was there") {
  const test::TempFolder folder;
  const fs::path file = folder.path() / "new" / "file.txt";
  write_whole(file, "old");
  CHECK(text_of(file) == "old");
  {
    AtomicFile out(file);
    out.write(bytes_of("head, "));
    out.write(bytes_of("body"));
    out.write_at_start(bytes_of("HEAD"));
    CHECK(text_of(file) == "old");
    out.commit();
  }
  CHECK(text_of(file) == "HEAD, body");
  CHECK(files_in(file.parent_path()) == 1);
}

TEST_CASE("a file that is not committed leaves nothing behind") {
  const test::TempFolder folder;
  const fs::path file = folder.path() / "file.txt";
  {
    AtomicFile out(file);
    out.write(bytes_of("half"));
  }
  CHECK(files_in(folder.path()) == 0);
  fs::create_directories(file / "in the way");
  CHECK_THROWS_AS(write_whole(file, "text"), fs::filesystem_error);
  CHECK(files_in(folder.path()) == 1);
}
