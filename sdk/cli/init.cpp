// SPDX-License-Identifier: Apache-2.0
// baton init: a small workflow to start from.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include <baton/workflow.h>

#include "sdk/cli/verbs.h"
#include "sdk/console/terminal.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

/// Words between @ are replaced. The prompts for the shipped model are the ones that it was trained with.
constexpr const char* kTeam = R"yaml(# yaml-language-server: $schema=./baton.v1.schema.json
# A team of two: the analyst solves a word problem, the inspector checks the solution.
version: 1
name: @name@

inputs:
  question: {type: string, required: true, description: A word problem}

models:
@model@

defaults: {max_tokens: @tokens@, temperature: 0}

agents:
  analyst:
    role: Mathematical Analyst
    prompt:
      system: >-
@analyst@
      user: |-
        Question:
        {{ question }}
@task@
  inspector:
    role: Inspector
    prompt:
      system: >-
@inspector@
      user: |-
        Question:
        {{ question }}

        Analyst:
        {{ agent_analyst_current }}
@task@    output: {pattern: "@pattern@", required: false}   # finds the answer; required: true fails a turn without one

workflow:
  topology: chain            # single chain parallel star layered fully_connected debate graph
  agents: [analyst, inspector]

outputs:
  answer: "{{ agent_inspector_current }}"
)yaml";

struct TeamTexts {
  const char *model, *tokens, *analyst, *inspector, *task, *pattern;
};

constexpr TeamTexts kNano = {
    .model =
        R"(  # A .gguf file, a model folder (Hugging Face layout), or a name that `baton models` lists. nano, the model that comes
  # with Baton, knows small word problems and nothing else; `baton init --model` writes prompts for other models.
  main: {path: "${env:BATON_MODEL:-nano}"})",
    .tokens = "200",
    .analyst =
        R"(        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.
        Repeat the problem, name each quantity with a letter, then put in the numbers.
        The last line is only the final result.)",
    .inspector = R"(        You are an inspector. You will be given a math problem and answers of other agents.
        Repeat the problem, solve it step by step, then check every answer and say which step is wrong.
        The last line is only the final result.)",
    .task = "",
    .pattern = "The answer is (-?[0-9]+)",
};

constexpr TeamTexts kPublished = {
    .model =
        R"(  # A .gguf file, a model folder (Hugging Face layout), a name that `baton models` lists, or hf:ORG/NAME:QUANTISATION,
  # which `baton pull` downloads.
  main: {path: "@path@"})",
    .tokens = "400",
    .analyst = "        You are a patient teacher of mathematics. You explain each step before you give a result.",
    .inspector = "        You are a patient teacher of mathematics. You check solutions by solving the problem again.",
    .task = R"(
        Let us solve this step by step: first what is given, then each computation in a line of its own, finally the
        sentence "The answer is" with the number.
)",
    .pattern = R"([Tt]he answer is:? *[^-0-9\\n]*(-?[0-9][0-9,]*))",
};

void replace_all(std::string& text, const std::string& mark, const std::string& value) {
  for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + value.size()))
    text.replace(at, mark.size(), value);
}

/// Returns a model's path as it stands between double quotes in YAML. Throws Failure for characters that a path should
/// not have.
std::string quoted_path(const std::string& path) {
  std::string quoted;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20) throw Failure(kUsage, "--model: the path has a control character");
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  replace_all(quoted, "${", "$${");
  return quoted;
}

std::string team_text(const std::string& name, const std::string& model) {
  const TeamTexts& texts = model.empty() ? kNano : kPublished;
  std::string text = kTeam;
  replace_all(text, "@model@", texts.model);
  replace_all(text, "@tokens@", texts.tokens);
  replace_all(text, "@analyst@", texts.analyst);
  replace_all(text, "@inspector@", texts.inspector);
  replace_all(text, "@task@", texts.task);
  replace_all(text, "@pattern@", texts.pattern);
  replace_all(text, "@name@", name);
  if (!model.empty()) replace_all(text, "@path@", quoted_path(model));
  return text;
}

void write_new(const fs::path& path, const std::string& text) {
  if (fs::exists(path)) throw Failure(kUsage, fmt::format("{} exists already; it was not overwritten", path.string()));
  write_whole_file(path, text);
  note("wrote " + path.string() + "\n");
}

/// Returns the folder's name as a name of the workflow, of letters, digits, '_' and '-' alone, so that it needs no
/// quotes.
std::string workflow_name(const fs::path& folder) {
  std::string name;
  for (const char c : fs::absolute(folder / ".").lexically_normal().parent_path().filename().string()) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    name += plain ? c : '_';
  }
  return name.empty() || name[0] == '-' || (name[0] >= '0' && name[0] <= '9') ? "team" + name : name;
}

int init(const fs::path& folder, const std::string& model) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Failure(kUsage, fmt::format("cannot make {}: {}", folder.string(), error.message()));
  const fs::path team = folder / "team.yaml";
  const bool is_file = !model.empty() && fs::exists(model, error);  // the whole path is found from any folder
  write_new(team, team_text(workflow_name(folder), is_file ? fs::absolute(model).lexically_normal().string() : model));
  if (const fs::path schema = folder / "baton.v1.schema.json"; !fs::exists(schema))
    write_new(schema, workflow_schema());
  note(
      fmt::format("\nRun it:    baton run {0} --input question=\"Noah pays for 2 books at 7 coins each with 75 coins. "
                  "How many coins does he get back from the shop?\"\n"
                  "Check it:  baton check {0}\n",
                  team.string()));
  return kOk;
}

}  // namespace

void add_init(CommandLine& line) {
  auto* verb = line.add_verb("init", "Write a small workflow to start from");
  auto folder = std::make_shared<std::string>(".");
  verb->add_option("folder", *folder, "Folder to write to; it is created if it does not exist")
      ->type_name("DIR")
      ->capture_default_str();
  auto model = std::make_shared<std::string>();
  verb->add_option(
          "--model", *model,
          "Model of the team: a .gguf file, a folder, a name or hf:ORG/NAME:QUANTISATION; without it the model "
          "that comes with Baton, with prompts of its own")
      ->type_name("PATH");
  verb->footer(
      "Writes team.yaml and the schema for editors; existing files are never overwritten.\n\nExamples:\n"
      "  baton init my_team\n"
      "  baton init my_team --model hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M");
  verb->run([folder, model] { return init(*folder, *model); });
}

}  // namespace baton::cli
