// baton init: a small workflow to start from.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include <baton/workflow.h>

#include "sdk/cli/exit_code.h"
#include "sdk/cli/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTeam = R"(# yaml-language-server: $schema=./baton.v1.schema.json
# A team of two: a writer answers, an editor improves the answer.
version: 1
name: {name}

inputs:
  question: {{type: string, required: true, description: What the team works on}}

models:
  # A model folder (Hugging Face layout), or a bare name that `baton models` lists.
  main: {{path: "${{env:BATON_MODEL:-nano}}"}}

defaults: {{max_tokens: 200, temperature: 0}}

agents:
  writer:
    role: Writer
    prompt:
      system: You answer questions briefly.
      user: "{{{{ question }}}}"

  editor:
    role: Editor
    prompt:
      system: You improve answers. You reply with the improved answer only.
      user: |
        The question: {{{{ question }}}}
        The writer's answer: {{{{ agent_writer_current }}}}

workflow:
  topology: chain            # single chain parallel star layered fully_connected debate graph
  agents: [writer, editor]

outputs:
  answer: "{{{{ agent_editor_current }}}}"
)";

void write_new(const fs::path& path, const std::string& text) {
  if (fs::exists(path)) throw Failure(kUsage, fmt::format("{} is there already; nothing was written over it", path.string()));
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
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    name += plain ? c : '_';
  }
  return name.empty() || name[0] == '-' || (name[0] >= '0' && name[0] <= '9') ? "team" + name : name;
}

int init(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Failure(kUsage, fmt::format("cannot make {}: {}", folder.string(), error.message()));
  const fs::path team = folder / "team.yaml";
  write_new(team, fmt::format(fmt::runtime(kTeam), fmt::arg("name", workflow_name(folder))));
  if (const fs::path schema = folder / "baton.v1.schema.json"; !fs::exists(schema)) write_new(schema, workflow_schema() + "\n");
  note(fmt::format("\nRun it:    baton run {0} --input question=\"Why is the sky blue?\"\nCheck it:  baton validate {0}\n", team.string()));
  return kOk;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("init", "Write a small workflow to start from");
  auto folder = std::make_shared<std::string>(".");
  verb->add_option("folder", *folder, "Where to; made if it is not there")->type_name("DIR")->capture_default_str();
  verb->footer("Writes team.yaml and the schema for editors; never over a file that is there.\n\nExample:\n  baton init my_team");
  verb->callback([folder, &action] { action = [folder] { return init(*folder); }; });
}

}  // namespace baton::cli
