// SPDX-License-Identifier: Apache-2.0
#include "engine/base/files.h"

#ifndef _WIN32
#include <sys/stat.h>
#endif

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

#include "tests/support/temp_folder.h"

namespace atomic_file_test {

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

#ifndef _WIN32
TEST_CASE("a new file has the permissions that the umask leaves, and one that is replaced keeps its own") {
  const test::TempFolder folder;
  const fs::path file = folder.path() / "file.txt";
  const auto mode = [&file] { return static_cast<unsigned>(fs::status(file).permissions()); };
  for (const unsigned mask : {0022u, 0077u, 0002u, 0000u}) {
    const mode_t before = ::umask(static_cast<mode_t>(mask));
    write_whole(file, "new");
    ::umask(before);
    INFO(mask);
    CHECK(mode() == (0666 & ~mask));
    fs::remove(file);
  }
  write_whole(file, "old");
  for (const unsigned permissions : {0600u, 0664u, 0444u}) {
    fs::permissions(file, static_cast<fs::perms>(permissions));
    write_whole(file, "new");
    CHECK(mode() == permissions);
    CHECK(text_of(file) == "new");
  }
}
#endif

}  // namespace atomic_file_test
