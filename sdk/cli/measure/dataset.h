// SPDX-License-Identifier: Apache-2.0
// A dataset: JSON Lines of {"id": str, "inputs": {name: value}, "answer": str}.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace baton::cli {

struct Question {
  std::string id;
  std::map<std::string, std::string> inputs;
  std::string answer;
};

/// The first `limit` questions (0: all). Throws Failure with kInvalidFile and every mistake as file:line: text.
std::vector<Question> read_dataset(const std::filesystem::path& file, std::size_t limit);

/// Whether two answers are the same: as numbers where both are, otherwise as texts without the blanks and the full stop
/// around them.
bool same_answer(const std::string& a, const std::string& b);

}  // namespace baton::cli
