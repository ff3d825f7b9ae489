// SPDX-License-Identifier: Apache-2.0
// The program `baton`: its verbs, and the names that they once had.
#include "engine/base/system/terminal.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/command_line.h"

namespace baton::cli {
namespace {

constexpr const char* kHelp =
    "Start here:\n"
    "  baton init my_team                                   write a small workflow to change\n"
    "  baton run my_team/team.yaml --input question=\"...\"   run it\n"
    "  baton chat my_team/team.yaml                         talk with it; it remembers what was said\n"
    "  baton serve my_team/team.yaml                        answer HTTP requests, as OpenAI's interface does\n"
    "  baton check my_team/team.yaml --plan                 what a run would do, before it does it\n"
    "  baton pull ORG/NAME:Q4_K_M                           download a published model\n"
    "  baton doctor                                         what this machine can do\n\n"
    "Every verb has its own help: baton run --help. The program baton-lab measures: benchmarks, datasets, profiles.\n"
    "Exit codes: 0 ok, 1 the run failed, 2 usage, 3 invalid file, 4 resources (memory, device, model), 5 timeout,\n"
    "6 verification failed, 7 suspended: the run waits for an answer, 130 interrupted.";

int baton_main(int argc, char** argv) {
  CommandLine line("baton", "Runs teams of LLM agents that are described in YAML, in this process.", kHelp);
  line.begin_group("Run workflows");
  for (const auto add : {add_init, add_run, add_chat, add_serve}) add(line);
  line.begin_group("Check and show workflows");
  add_check(line);
  line.begin_group("Recorded runs");
  for (const auto add : {add_resume, add_report, add_compare}) add(line);
  line.begin_group("Models");
  for (const auto add : {add_pull, add_models}) add(line);
  line.begin_group("Baton itself");
  for (const auto add : {add_doctor, add_completion}) add(line);
  return run_program(line,
                     {{"validate", "baton check FILE"},
                      {"plan", "baton check FILE --plan"},
                      {"graph", "baton check FILE --graph FORMAT"},
                      {"render", "baton check FILE --render AGENT"},
                      {"explain", "baton check --explain CODE"},
                      {"schema", "baton check --schema"},
                      {"trace", "baton report DIR --trace otlp|URL|FILE"},
                      {"diff", "baton compare DIR1 DIR2"},
                      {"replay", "baton compare DIR --replay"},
                      {"version", "baton --version"},
                      {"bench", "baton-lab bench"},
                      {"eval", "baton-lab eval"},
                      {"load", "baton-lab load"},
                      {"learn", "baton-lab learn"},
                      {"profile", "baton-lab profile"}},
                     argc, argv);
}

}  // namespace
}  // namespace baton::cli

int main(int argc, char** argv) {
  baton::open_standard_files();
  return baton::cli::baton_main(argc, argv);
}
