// SPDX-License-Identifier: Apache-2.0
// Options that several verbs share, and the values made from them.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <baton/baton.h>

#include "sdk/console/command_line.h"
#include "sdk/console/terminal.h"

namespace baton::cli {

/// FILE, --set, --model, --relay: which workflow, with what changed.
struct WorkflowArguments {
  std::string file;
  std::vector<std::string> set;     // "a.b=v"
  std::vector<std::string> models;  // "NAME=PATH", or "PATH" for the default model
  std::string relay;

  void add_to(Verb& verb);
  /// The same without FILE, for a verb that takes several.
  void add_settings_to(Verb& verb);
  /// Throws WorkflowError, and Failure for an invalid option.
  Workflow load() const { return load({}); }
  /// To show it: without the tools of a host that the file describes.
  Workflow load_to_show() const { return load({.absent_tools = true}); }
  /// In place of the workflow's default model, or empty.
  std::string default_model() const;

 private:
  Workflow load(WorkflowOptions options) const;
};

/// The exit code of a run, from its state and from whose its error is.
int exit_code_of(const RunRecord& record);

/// "find_order, get_weather": what only the program that runs the workflow has; empty: nothing.
std::string tools_of_host(const Workflow& workflow);

/// --device, --threads, --slowdown, --no-drafts, the folder of what is learned, --allow-servers.
struct EngineArguments {
  std::string device = "auto";
  int threads = 0;
  double slowdown = 0;
  bool no_drafts = false;
  std::string learned;  // folder
  bool allow_servers = false;

  void add_to(Verb& verb);
  /// `model`: in place of a workflow's default one, or empty. With a line on stderr's terminal while a model loads,
  /// unless `quiet`.
  EngineOptions options(const std::string& model, bool quiet) const;
};

/// --input, --input-file.
struct InputArguments {
  std::vector<std::string> pairs;  // "name=value" or "name=@file"
  std::string file;

  void add_to(Verb& verb);
  std::map<std::string, std::string> values() const;
};

/// --answer STEP=TEXT, several times.
void add_answers(Verb& verb, std::vector<std::string>& answers);
/// By step. Throws Failure.
std::map<std::string, std::string> answers_of(const std::vector<std::string>& answers);

/// "a.b=value" in two. Throws Failure.
std::pair<std::string, std::string> split_setting(const std::string& setting);

/// "90s", "1.5m", "500ms", "1h"; a bare number is seconds. Throws Failure naming the option.
std::chrono::milliseconds duration_of_option(const std::string& text, const std::string& option);

/// The whole file. Throws Failure with kUsage.
std::string read_file(const std::filesystem::path& path);

/// How the user of `command` gives the inputs that are missing, with their descriptions.
std::string how_to_give(const Workflow& workflow, const std::vector<std::string>& missing, const std::string& command);

}  // namespace baton::cli
