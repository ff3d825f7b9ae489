// SPDX-License-Identifier: Apache-2.0
// A dataset: JSON Lines of {"id": str, "inputs": {name: value}, "answer": str, "check": how the answer is judged}.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "sdk/cli/measure/answer_check.h"

namespace baton::cli {

struct Question {
  std::string id;
  std::map<std::string, std::string> inputs;
  std::string answer;  // may be empty where `check` has tests
  AnswerCheck check;
};

/// The first `limit` questions (0: all). Throws Failure with kInvalidFile and every mistake as file:line: text, but
/// not more than the first 100.
std::vector<Question> read_dataset(const std::filesystem::path& file, std::size_t limit);

}  // namespace baton::cli
