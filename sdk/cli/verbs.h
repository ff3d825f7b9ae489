// SPDX-License-Identifier: Apache-2.0
// The verbs of `baton`: each function adds one to the command line.
#pragma once

#include "sdk/console/command_line.h"

namespace baton::cli {

void add_init(CommandLine& line);
void add_run(CommandLine& line);
void add_chat(CommandLine& line);
void add_serve(CommandLine& line);
void add_check(CommandLine& line);
void add_resume(CommandLine& line);
void add_report(CommandLine& line);
void add_compare(CommandLine& line);
void add_pull(CommandLine& line);
void add_models(CommandLine& line);
void add_doctor(CommandLine& line);

}  // namespace baton::cli
