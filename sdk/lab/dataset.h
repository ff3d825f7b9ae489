// SPDX-License-Identifier: Apache-2.0
// How an answer is judged: `check` of a dataset's line (docs/lab.md, Evaluation).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace baton::inline v1::lab {
using namespace cli;

struct AnswerCheck {
  enum class Kind : std::uint8_t {
    text,    // the same number or the same text (same_answer)
    number,  // the last number of the answer, as GSM8K's
    choice,  // the letter of an option
    f1,      // F1 of the words, as SQuAD's and 2WikiMultihopQA's
    python,  // the tests pass: 1, else 0 (pass@1)
  };
  Kind kind = Kind::text;
  std::string setup;  // python: code in front of the answer's, for example imports
  std::string tests;  // python: code behind it; an exception is a failure

  /// True when every score is 0 or 1.
  bool is_binary() const { return kind != Kind::f1; }
};

/// Returns the score, 0 to 1, of an answer. Python runs in the confined process of the python tool, with its limits of
/// time and memory.
double score_of(const AnswerCheck& check, const std::string& answer, const std::string& expected);

/// Whether two answers are the same: as numbers where both are, otherwise as texts without the blanks and the full stop
/// around them.
bool same_answer(const std::string& a, const std::string& b);

/// Throws Failure (kResources) where no Python can be run, and says why.
void require_python();

/// What is wrong with an expected answer, or empty.
std::string problem_of(const AnswerCheck& check, const std::string& expected);

// A dataset: JSON Lines of {"id": str, "inputs": {name: value}, "answer": str, "check": how the answer is judged}.

struct Question {
  std::string id;
  std::map<std::string, std::string> inputs;
  std::string answer;  // may be empty where `check` has tests
  AnswerCheck check;
};

/// The first `limit` questions (0: all). Throws Failure with kInvalidFile and every mistake as file:line: text, but
/// not more than the first 100.
std::vector<Question> read_dataset(const std::filesystem::path& file, std::size_t limit);

}  // namespace baton::inline v1::lab
