// SPDX-License-Identifier: Apache-2.0
// docs/yaml.md: its tables are those of the code, and its examples are workflows. So is the table of families of
// docs/models.md. After a change write the tables anew with: baton_test_workflows "write the reference"
#include <catch2/catch.hpp>

#include "engine/model/config.h"
#include "tests/support/workflow_files.h"

namespace baton::test::reference_page_test {
namespace {

const std::string kHeading = "## Reference\n\n";

std::filesystem::path page_file() { return source_folder() / "docs" / "yaml.md"; }

/// The page up to its generated part.
std::string prose() {
  const std::string page = read_text(page_file());
  const std::size_t at = page.find(kHeading);
  REQUIRE(at != std::string::npos);
  return page.substr(0, at + kHeading.size());
}

std::filesystem::path models_file() { return source_folder() / "docs" / "models.md"; }

/// The page of models with the table of families that is behind its heading.
std::string models_page() {
  const std::string page = read_text(models_file()), heading = "## Families\n\n";
  const std::size_t at = page.find(heading), end = page.find("\n\n", at + heading.size());
  REQUIRE(at != std::string::npos);
  REQUIRE(end != std::string::npos);
  return page.substr(0, at + heading.size()) + families_markdown() + page.substr(end + 1);
}

TEST_CASE("write the reference", "[.]") {
  const std::string text = prose() + workflow_reference_markdown(), models = models_page();
  std::ofstream(page_file(), std::ios::binary) << text;
  std::ofstream(models_file(), std::ios::binary) << models;
}

TEST_CASE("the reference page is that of the code") {
  CHECK(read_text(page_file()) == prose() + workflow_reference_markdown());
  CHECK(read_text(models_file()) == models_page());
}

TEST_CASE("the examples of the reference page are workflows") {
  const std::string page = prose(), begin = "```yaml\n", end = "```\n";
  int examples = 0;
  for (std::size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    const std::string example = page.substr(at, page.find(end, at) - at);
    INFO(example);
    CHECK(errors_of(example) == "");
    ++examples;
  }
  CHECK(examples == 8);
}

}  // namespace
}  // namespace baton::test::reference_page_test
