// SPDX-License-Identifier: Apache-2.0
// docs/yaml.md: its tables are those of the code, and its examples are workflows. After a change of the format write
// the tables anew with: baton_test_workflows "write the reference"
#include <catch2/catch.hpp>

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

TEST_CASE("write the reference", "[.]") {
  const std::string text = prose() + workflow_reference_markdown();
  std::ofstream(page_file(), std::ios::binary) << text;
}

TEST_CASE("the reference page is that of the code") {
  CHECK(read_text(page_file()) == prose() + workflow_reference_markdown());
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
  CHECK(examples == 7);
}

}  // namespace
}  // namespace baton::test::reference_page_test
