// SPDX-License-Identifier: Apache-2.0
// A workflow: agents, their prompts and who hands what to whom, read from YAML and checked.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <baton/tools.h>

namespace baton::inline v1 {

struct WorkflowOptions {
  Tools tools{};              // the host's own tools; a workflow that names an unknown tool is an error
  bool absent_tools = false;  // but for those that its file describes: to check and show it, not to run it
  /// Settings that take precedence over the file's, as "relay.method" = "full"; values are read as YAML.
  std::vector<std::pair<std::string, std::string>> set{};
  /// A folder or a bare name in place of the path of a model that the file declares, by its name there.
  std::vector<std::pair<std::string, std::string>> models{};
};

struct InputInfo {
  std::string name;
  bool required = true, messages = false;  // messages: the value is a JSON list of them (type `messages`), else a text
  std::optional<std::string> default_value;
  std::string description;
};

struct AgentInfo {
  std::string id, role;
  bool has_answer = false;  // a pattern or schema finds the answer in the agent's output
};

struct TurnInfo;  // <baton/turns.h>

/// Immutable and cheap to copy; copies share. All members are safe from any thread.
class Workflow {
 public:
  /// Reads and checks a file, or an installed one by bare name; loads no model. Throws WorkflowError with all errors.
  static Workflow load(const std::filesystem::path& file, const WorkflowOptions& options = {});

  /// The same from text. `name` stands for the file in errors; relative paths start in its folder.
  static Workflow parse(std::string_view yaml, const WorkflowOptions& options = {},
                        const std::filesystem::path& name = "workflow.yaml");

  const std::string& name() const;
  std::string fingerprint() const;  // 32 hexadecimal digits, of its files, its settings and its prompts
  std::vector<InputInfo> inputs() const;
  std::vector<AgentInfo> agents() const;          // in the order of the file
  std::vector<std::string> outputs() const;       // names, in the order of the file
  std::vector<std::string> absent_tools() const;  // that the file describes, and a host must give before a run
  /// The turns of the expanded graph, in an order in which they can run (include baton/turns.h).
  std::vector<TurnInfo> turns() const;

  /// The expanded graph as "ascii", "mermaid", "dot" or "json". Throws std::invalid_argument for any other format.
  std::string graph(std::string_view format = "ascii") const;

  /// For the library's own use.
  struct Impl;
  const Impl& impl() const { return *impl_; }
  explicit Workflow(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

// The error codes of workflow files (docs/yaml.md has them as a table).

/// Of a code that `Diagnostic::code` may hold.
struct Explanation {
  std::string code;     // "E0304"
  std::string meaning;  // one sentence
  std::string causes;   // what usually leads to it
  std::string remedy;   // what to do
  std::string wrong;    // lines of a workflow file that get this code, as an example
  std::string right;    // what to write in their place
};

/// All of them, in ascending order of their codes.
const std::vector<Explanation>& explanations();

/// The JSON Schema (draft-07) of workflow files, for editors.
std::string workflow_schema();

/// Every key and error code of workflow files as Markdown tables, from the same source.
std::string workflow_reference();

}  // namespace baton::inline v1
