// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/auto_files.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/base/files.h"
#include "engine/cpu/cpu.h"
#include "tests/support/folders.h"
#include "tests/support/own_cache.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace level_file_test {

using namespace baton;
using namespace baton::test;

namespace {

const StoredLevels kStored = {"f00d", 24, "synthetic", {{4, 5, 20}, {{0.9, 0.01, 0.03}, {0.8, 0.002, 0.008}}, 0.25}};

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = to_json(kStored);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("level file: what is written is read", "[levels]") {
  const StoredLevels read = parse_levels(to_json(kStored), "here");
  CHECK(read.fingerprint == kStored.fingerprint);
  CHECK(read.layers == 24);
  CHECK(read.source == "synthetic");
  CHECK(read.levels == kStored.levels);
  StoredLevels wild = kStored;  // of few hand-overs that differ widely
  wild.levels.levels = {{0.9, 1e300, HUGE_VAL}};
  wild.levels.guard_scale = 1e200;
  const StoredLevels bounded = parse_levels(to_json(wild), "here");
  CHECK(bounded.levels.levels[0].high == 1e6);
  CHECK(bounded.levels.guard_scale == 1e6);
}

TEST_CASE("level file: the one in the cache is found, and ignored when it is damaged or of other weights", "[levels]") {
  const OwnCache cache;
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {.layers = 24});
  const std::filesystem::path file = levels_in_cache(model->fingerprint);
  StoredLevels stored = kStored;
  stored.fingerprint = model->fingerprint;
  CHECK(!find_levels(*model));
  write_whole(file, to_json(stored));
  CHECK(find_levels(*model)->levels == kStored.levels);
  write_whole(file, to_json(kStored));
  CHECK(!find_levels(*model));
  write_whole(file, "{");
  CHECK(!find_levels(*model));
}

TEST_CASE("level file: installed ones are taken if neither the model's folder nor the cache has any", "[levels]") {
  const OwnCache cache;
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {.layers = 24});
  const TempFolder share;
  const std::vector<std::filesystem::path> folders = {share.path() / "nothing", share.path()};
  StoredLevels stored = kStored;
  stored.fingerprint = model->fingerprint;
  CHECK(!find_levels(*model, folders));
  std::filesystem::create_directories(share.path() / "levels");
  write_whole(share.path() / "levels" / (model->fingerprint + ".json"), to_json(stored));
  const auto installed = find_levels(*model, folders);
  REQUIRE(installed);
  CHECK(installed->levels.shipped);
  CHECK(installed->levels.levels == stored.levels.levels);
  CHECK(basis_of(installed->levels) == "levels that come with Baton: ");
  write_whole(levels_in_cache(model->fingerprint), to_json(stored));
  CHECK_FALSE(find_levels(*model, folders)->levels.shipped);
}

TEST_CASE("level file: those that come with Baton are files of levels, named by their model's fingerprint",
          "[levels]") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_folder() / "engine/learning/levels")) {
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const StoredLevels stored = parse_levels(text, entry.path().string());
    CHECK(entry.path().stem() == stored.fingerprint);
    CHECK(stored.levels.range == LayerRange::by_depth(stored.layers));
    ++files;
  }
  CHECK(files >= 3);
}

TEST_CASE("level file: a wrong field is named, with what was expected", "[levels]") {
  const auto problem = [](const std::string& text) {
    try {
      parse_levels(text, "file.json");
      return std::string("none");
    } catch (const ModelError& error) {
      return std::string(error.what());
    }
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(problem("{"), Contains("file.json"));
  CHECK_THAT(problem(replaced("\"schema\": 1", "\"schema\": 2")), Contains("schema"));
  CHECK_THAT(problem(replaced("\"end\": 20", "\"end\": 24")), Contains("end"));
  CHECK_THAT(problem(replaced("\"detect\": 5", "\"detect\": 4")), Contains("detect"));
  CHECK_THAT(problem(replaced("0.9", "1.5")), Contains("levels[0].reuse"));
  CHECK_THAT(problem(replaced("0.008", "-1")), Contains("levels[1].high"));
  CHECK_THAT(problem(replaced("0.9", "0.8")), Contains("highest reuse first"));
  CHECK_THAT(problem(replaced("0.25", "-1")), Contains("guard_scale"));
  CHECK_THAT(problem(replaced("guard_scale", "gourd_scale")), Contains("guard_scale"));
  CHECK_THAT(problem(replaced("\"layers\": 24", "\"layers\": 3")), Contains("layers"));
  const std::string text = to_json(kStored);
  for (std::size_t length = 0; length < text.size() - 2; ++length) CHECK(problem(text.substr(0, length)) != "none");
}

}  // namespace level_file_test
