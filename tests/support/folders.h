// SPDX-License-Identifier: Apache-2.0
// Where the files of the tests are: in the source tree, or where BATON_TEST_DIR says, for programs that were moved.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace baton::test {

/// tests/
inline std::filesystem::path test_folder() {
  const char* moved = std::getenv("BATON_TEST_DIR");
  return moved != nullptr ? moved : BATON_TEST_DIR;
}

/// The folder above, which holds samples/, workflows/ and the rest.
inline std::filesystem::path source_folder() { return test_folder().parent_path(); }

}  // namespace baton::test
