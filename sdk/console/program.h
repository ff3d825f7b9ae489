// SPDX-License-Identifier: Apache-2.0
// What the programs `baton` and `baton-lab` have in common: a verb is run, and errors become exit codes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sdk/console/command_line.h"

namespace baton::cli {

/// Adds `completion`, which prints scripts for shells.
void add_completion(CommandLine& line);

/// What may stand at the end of a command line whose last word may be empty, for the scripts of shells: each line is a
/// value, a tab and what it means; ":files" stands for names of files. `words` follow the program's name.
std::string candidate_lines(const CommandLine& line, const std::vector<std::string>& words);

/// Reads the command line and runs its verb; returns the exit code. `moved`: verbs that the program once had, with what
/// to write now. Once, from main.
int run_program(CommandLine& line, const std::map<std::string, std::string>& moved, int argc, char** argv);

}  // namespace baton::cli
