// SPDX-License-Identifier: Apache-2.0
// baton init: a small workflow to start from.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include <baton/workflow.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTeam = R"yaml(# yaml-language-server: $schema=./baton.v1.schema.json
# A team of two: the analyst solves a word problem, the inspector checks the solution.
version: 1
name: my_team

inputs:
  question: {type: string, required: true, description: A word problem}

models:
  # A model folder (Hugging Face layout), or a name that `baton models` lists. nano, the model that comes with Baton,
  # knows small word problems and nothing else.
  main: {path: "${env:BATON_MODEL:-nano}"}

defaults: {max_tokens: 200, temperature: 0}

agents:
  analyst:
    role: Mathematical Analyst
    prompt:
      system: >-
        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.
        Repeat the problem, name each quantity with a letter, then put in the numbers.
        The last line is only the final result.
      user: |-
        Question:
        {{ question }}

  inspector:
    role: Inspector
    prompt:
      system: >-
        You are an inspector. You will be given a math problem and answers of other agents.
        Repeat the problem, solve it step by step, then check every answer and say which step is wrong.
        The last line is only the final result.
      user: |-
        Question:
        {{ question }}

        Analyst:
        {{ agent_analyst_current }}
    output: {pattern: "The answer is (-?[0-9]+)"}

workflow:
  topology: chain            # single chain parallel star layered fully_connected debate graph
  agents: [analyst, inspector]

outputs:
  answer: "{{ agent_inspector_current }}"
)yaml";

void write_new(const fs::path& path, const std::string& text) {
  if (fs::exists(path)) throw Failure(kUsage, fmt::format("{} exists already; it was not overwritten", path.string()));
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Failure(kUsage, fmt::format("cannot write {}", path.string()));
  note("wrote " + path.string() + "\n");
}

/// The folder's name as the workflow's: ids are [a-z][a-z0-9_]*, names are freer, but a plain one needs no quotes.
std::string workflow_name(const fs::path& folder) {
  std::string name;
  for (const char c : fs::absolute(folder / ".").lexically_normal().parent_path().filename().string()) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    name += plain ? c : '_';
  }
  return name.empty() || name[0] == '-' || (name[0] >= '0' && name[0] <= '9') ? "team" + name : name;
}

int init(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Failure(kUsage, fmt::format("cannot make {}: {}", folder.string(), error.message()));
  const fs::path team = folder / "team.yaml";
  std::string text = kTeam;
  const std::string placeholder = "my_team";
  text.replace(text.find(placeholder), placeholder.size(), workflow_name(folder));
  write_new(team, text);
  if (const fs::path schema = folder / "baton.v1.schema.json"; !fs::exists(schema))
    write_new(schema, workflow_schema());
  note(
      fmt::format("\nRun it:    baton run {0} --input question=\"Noah pays for 2 books at 7 coins each with 75 coins. "
                  "How many coins does he get back from the shop?\"\n"
                  "Check it:  baton validate {0}\n",
                  team.string()));
  return kOk;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("init", "Write a small workflow to start from");
  auto folder = std::make_shared<std::string>(".");
  verb->add_option("folder", *folder, "Folder to write to; it is created if it does not exist")
      ->type_name("DIR")
      ->capture_default_str();
  verb->footer(
      "Writes team.yaml and the schema for editors; existing files are never overwritten.\n\nExample:\n  baton init "
      "my_team");
  verb->callback([folder, &action] { action = [folder] { return init(*folder); }; });
}

}  // namespace baton::cli
