// SPDX-License-Identifier: Apache-2.0
// Damaged workflows are read or refused, never more than that; the same mutations on every machine.
#include <catch2/catch.hpp>

#include <random>

#include "tests/support/workflow_files.h"

namespace baton::test::mutation_test {
namespace {

TEST_CASE("damaged workflows are read or refused") {
  const auto file = test_folder() / "workflows" / "reference" / "team.yaml";
  const std::string sound = read_text(file);
  static constexpr char kBytes[] = "{}[]:,-&*!|>'\"%@`#?\n\t \\<$~0aA_\x01\x7f\x80\xc3\xff";
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = sound;
    for (std::size_t change = 0; change <= below(6); ++change) {
      const std::size_t at = below(text.size());
      const std::size_t length = std::min<std::size_t>(below(30), text.size() - at);
      switch (below(4)) {
        case 0:
          text[at] = kBytes[below(sizeof kBytes - 1)];
          break;
        case 1:
          text.insert(at, 1, kBytes[below(sizeof kBytes - 1)]);
          break;
        case 2:
          text.erase(at, length);
          break;
        default:
          text.insert(below(text.size()), text.substr(at, length));
      }
    }
    const std::string errors = errors_of(text, file);
    if (!errors.empty()) ++refused;
    CHECK((errors.empty() || errors.find("error[E0") != std::string::npos));
  }
  CHECK(refused > 200);
  CHECK(refused < 400);
}

}  // namespace
}  // namespace baton::test::mutation_test
