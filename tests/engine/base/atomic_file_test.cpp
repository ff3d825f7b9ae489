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

TEST_CASE("a file is written to where links lead, and devices, pipes and folders stay what they are") {
  const test::TempFolder folder;
  const fs::path target = folder.path() / "target.txt";
  write_whole(target, "old");
  fs::create_symlink("target.txt", folder.path() / "one");
  fs::create_symlink(folder.path() / "one", folder.path() / "two");
  write_whole(folder.path() / "two", "new");
  CHECK(text_of(target) == "new");
  CHECK(fs::is_symlink(folder.path() / "one"));
  CHECK(fs::is_symlink(folder.path() / "two"));
  fs::create_symlink("absent.txt", folder.path() / "dangling");
  write_whole(folder.path() / "dangling", "made");
  CHECK(text_of(folder.path() / "absent.txt") == "made");

  fs::create_symlink("round", folder.path() / "round");
  fs::create_directory(folder.path() / "inside");
#ifndef _WIN32
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  const std::string device = "/dev/null";
#else
  const std::string device = (folder.path() / "inside").string();
#endif
  std::vector<std::pair<std::string, std::string>> refused = {{"round", "the links at it lead nowhere"},
                                                              {"inside", "a folder is there"}};
  if (fs::exists(folder.path() / "pipe")) {
    refused.emplace_back("pipe", "a device, a pipe or a socket is there");
    fs::create_symlink(device, folder.path() / "device");  // a link, so that a mistake replaces the link alone
    refused.emplace_back("device", "a device, a pipe or a socket is there");
  }
  for (const auto& [name, problem] : refused) {
    INFO(name);
    const fs::path file = folder.path() / name;
    const fs::file_status before = fs::symlink_status(file);
    CHECK(write_target(file).problem == problem);
    CHECK_THROWS_WITH(AtomicFile(file), Catch::Contains(problem));
    CHECK(fs::symlink_status(file).type() == before.type());
  }
  CHECK(write_target("/dev/null").problem.empty() == !fs::exists("/dev/null"));
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
