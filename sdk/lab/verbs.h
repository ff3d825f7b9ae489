// SPDX-License-Identifier: Apache-2.0
// The verbs of `baton-lab`: each function adds one to the command line.
#pragma once

#include "sdk/console/command_line.h"

namespace baton::inline v1::lab {
using namespace cli;

void add_bench(CommandLine& line);
void add_eval(CommandLine& line);
void add_load(CommandLine& line);
void add_perplexity(CommandLine& line);
void add_profile(CommandLine& line);
void add_learn(CommandLine& line);

}  // namespace baton::inline v1::lab
