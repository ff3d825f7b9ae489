// SPDX-License-Identifier: Apache-2.0
// What may stand at the end of a command line: verbs, options and their values. Shells ask for it (`baton completion`).
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace baton::cli {

struct Candidate {
  std::string value;  // of one line, without control characters
  std::string about;  // one line, or empty
};

struct Candidates {
  std::vector<Candidate> values;  // each begins with the last word
  bool files = false;             // names of files too, which the shell knows better
};

/// For the last of `words`, which follow "baton"; it may be empty. Reads the workflow that they name. Never throws for
/// what they are.
Candidates candidates_for(const CLI::App& app, const std::vector<std::string>& words);

/// The same as text for the scripts of shells: each line is a value, a tab and what it means; ":files" stands for names
/// of files.
std::string candidate_lines(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace baton::cli
