// SPDX-License-Identifier: Apache-2.0
// What is told of families is what the readers of configurations and the goldens say.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/model/config.h"
#include "engine/model/gguf.h"
#include "tests/support/golden_files.h"

namespace baton::test::families_test {
namespace {

bool has(const std::vector<std::string>& list, std::string_view one) {
  return std::ranges::find(list, one) != list.end();
}

/// The classes of the goldens' checkpoints.
std::set<std::string> golden_classes() {
  std::set<std::string> classes;
  for (const auto& entry : std::filesystem::directory_iterator(test_folder() / "golden" / "models")) {
    if (!entry.is_directory()) continue;
    const Json config = golden_json("models/" + entry.path().filename().string() + "/config.json");
    for (const Json& name : config["architectures"]) classes.insert(name.get<std::string>());
  }
  return classes;
}

}  // namespace

TEST_CASE("each class and each architecture that can be read is of a family, and no other") {
  const std::vector<ModelFamily> families = model_families();
  const auto is_told = [&](std::string_view name, auto list) {
    return std::ranges::any_of(families, [&](const ModelFamily& family) { return has(family.*list, name); });
  };
  const auto classes = model_classes(), architectures = gguf_architectures();
  for (const std::string_view name : classes) {
    INFO(name);
    CHECK(is_told(name, &ModelFamily::classes));
  }
  for (const std::string_view name : architectures) {
    INFO(name);
    CHECK(is_told(name, &ModelFamily::architectures));
  }
  for (const ModelFamily& family : families) {
    INFO(family.name);
    CHECK(std::ranges::any_of(family.classes,
                              [&](const auto& name) { return std::ranges::find(classes, name) != classes.end(); }));
    for (const std::string& name : family.architectures)
      CHECK(std::ranges::find(architectures, name) != architectures.end());
    CHECK_FALSE(family.layers.empty());
  }
}

TEST_CASE("a family that goldens are told of has some, and each golden is told of") {
  const std::set<std::string> classes = golden_classes();
  REQUIRE(classes.size() > 10);
  std::set<std::string> told;
  for (const ModelFamily& family : model_families()) {
    INFO(family.name);
    const auto golden = std::ranges::find_if(family.classes, [&](const auto& name) { return classes.contains(name); });
    CHECK((golden != family.classes.end()) == has(family.proofs, "goldens"));
    told.insert(family.classes.begin(), family.classes.end());
  }
  CHECK(std::ranges::includes(told, classes));
}

TEST_CASE("families are in the order of their names") {
  const std::vector<ModelFamily> families = model_families();
  const auto lower = [](const ModelFamily& family) {
    std::string name = family.name;
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return name;
  };
  CHECK(std::ranges::is_sorted(families, {}, lower));
}

}  // namespace baton::test::families_test
