// SPDX-License-Identifier: Apache-2.0
// The program `baton-lab`: what is measured with the library, and what is learned from it.
#include "engine/base/system/terminal.h"
#include "sdk/console/command_line.h"
#include "sdk/lab/layer_profiler.h"
#include "sdk/lab/verbs.h"

namespace baton::inline v1::lab {
namespace {

constexpr const char* kHelp =
    "Start here:\n"
    "  baton-lab bench --model nano                            how fast a model is, and what each method saves\n"
    "  baton-lab eval team.yaml --dataset questions.jsonl      how often a team is right, under each method\n"
    "  baton-lab perplexity text.txt --model nano              how well a model predicts a text\n\n"
    "What 'profile' and 'learn' find is written to files that 'baton' reads. Every verb has its own help:\n"
    "baton-lab bench --help. Exit codes are those of baton.";

int lab_main(int argc, char** argv) {
  CommandLine line("baton-lab", "Measures models, workflows and methods of reusing KV.", kHelp);
  line.begin_group("Measure");
  for (const auto add : {add_bench, add_eval, add_load, add_perplexity}) add(line);
  line.begin_group("Learn for later runs");
  for (const auto add : {add_profile, add_learn}) add(line);
  line.begin_group("Baton-lab itself");
  add_completion(line);
  return run_program(line, {}, argc, argv);
}

}  // namespace
}  // namespace baton::inline v1::lab

int main(int argc, char** argv) {
  baton::open_standard_files();
  baton::lab::register_lab();
  return baton::lab::lab_main(argc, argv);
}
