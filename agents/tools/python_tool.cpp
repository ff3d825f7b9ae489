// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/python_tool.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "agents/tools/sandbox/sandbox.h"
#include "agents/tools/tool.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "engine/base/units/numbers.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// True for an executable that is not a script. The shims of version managers are scripts that start other processes to
/// find the interpreter, which the sandbox denies.
bool is_program(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || !is_executable(path)) return false;
  char begin[2] = {};
  std::ifstream(path, std::ios::binary).read(begin, 2);
  return std::string_view(begin, 2) != "#!";
}

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? fs::absolute(name) : fs::path();
  const char* search = std::getenv("PATH");
  for (const std::string& folder : folders_of_list(search == nullptr ? "/usr/bin:/bin" : search)) {
    const fs::path candidate = fs::path(folder) / name;
    if (candidate.is_absolute() && is_program(candidate)) return candidate;
  }
  return {};
}

/// True for a folder with a Python library: python3.11/, for example.
bool holds_python(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end; entry.increment(error)) {
    if (error) return false;
    if (entry->path().filename().string().starts_with("python3") && entry->is_directory(error)) return true;
  }
  return false;
}

[[noreturn]] void refuse(const std::string& option, std::string_view expected, const std::string& found) {
  throw std::invalid_argument(fmt::format("{}: expected {}, found '{}'", option, expected, found));
}

}  // namespace

PythonOptions parse_python_options(const std::map<std::string, std::string>& options,
                                   std::chrono::milliseconds default_timeout) {
  PythonOptions parsed;
  parsed.timeout = default_timeout;
  std::string interpreter = "python3";
  for (const auto& [name, text] : options) {
    if (name == "timeout") {
      const auto value = parse_duration(text);
      if (!value || value->count() == 0) refuse(name, kPositiveDurationForm, text);
      parsed.timeout = *value;
    } else if (name == "memory") {
      const auto value = parse_size(text);
      if (!value || *value == 0) refuse(name, kSizeForm, text);
      parsed.memory_bytes = *value;
    } else if (name == "interpreter") {
      interpreter = text;
    } else if (name == "before") {
      parsed.before = text;
    } else if (name == "after") {
      parsed.after = text;
    } else {
      throw std::invalid_argument(
          fmt::format("unknown option '{}'; expected timeout, memory, interpreter, before or after", name));
    }
  }
  parsed.interpreter = find_program(interpreter);
  if (parsed.interpreter.empty())
    throw std::invalid_argument(
        fmt::format("interpreter: no program '{}' was found (scripts do not count)", interpreter));
  return parsed;
}

std::vector<fs::path> python_files(const fs::path& interpreter) {
  std::vector<fs::path> files;
  std::error_code error;
  const auto add_installation = [&](const fs::path& program) {
    const fs::path prefix = program.parent_path().parent_path();
    files.push_back(program);
    if (fs::exists(prefix / "pyvenv.cfg", error)) files.push_back(prefix / "pyvenv.cfg");
    for (const char* name : {"lib", "lib64"}) {
      if (holds_python(prefix / name)) files.push_back(prefix / name);
    }
  };
  constexpr int kMaxLinks = 40;  // as in the kernel
  fs::path program = interpreter;
  for (int link = 0; link < kMaxLinks; ++link) {
    add_installation(program);
    if (!fs::is_symlink(program, error)) break;
    program = (program.parent_path() / fs::read_symlink(program, error)).lexically_normal();
    if (error) break;
  }
  program = fs::canonical(interpreter, error);
  if (!error) add_installation(program);
  return files;
}

namespace {

/// Returns the message that the agent gets in addition to the output when the code failed.
std::string remark_on(const SandboxResult& result, const PythonOptions& options) {
  switch (result.end) {
    case SandboxResult::End::exited:
      return result.code == 0 ? "" : fmt::format("[ended with exit code {}]", result.code);
    case SandboxResult::End::signalled:
      return fmt::format("[ended by signal {} ({})]", result.code, result.signal);
    case SandboxResult::End::timed_out:
      return fmt::format("[stopped: ran longer than {} ms]", options.timeout.count());
    case SandboxResult::End::stopped:
      return "[stopped]";
    case SandboxResult::End::flooded:
      return "[stopped: too much output]";
    case SandboxResult::End::exceeded:
      return fmt::format("[stopped: {}]", result.exceeded);
  }
  return {};
}

/// The first error in the options; empty: none.
std::string wrong_in(const std::map<std::string, std::string>& options) {
  if (std::string missing = why_no_sandbox(); !missing.empty()) return missing;
  try {
    parse_python_options(options, ToolCall().timeout);
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

PythonOptions options_of(const ToolCall& call) {
  if (const std::string missing = why_no_sandbox(); !missing.empty()) throw std::runtime_error(missing);
  return parse_python_options(call.options, call.timeout);
}

ToolResult run(const Sandbox& sandbox, const std::string& code, const PythonOptions& options,
               const std::stop_token& stop) {
  SandboxRequest request;
  // -I: ignores the environment, the user's site and the working folder; -B: writes no caches; -u: does not buffer,
  // so that output from before a timeout is kept.
  request.command = {options.interpreter.string(), "-I", "-B", "-u", "-"};
  request.input = code;
  if (!options.before.empty()) request.input = options.before + "\n" + request.input;
  if (!options.after.empty()) request.input += "\n" + options.after;
  request.readable = python_files(options.interpreter);
  request.timeout = options.timeout;
  request.memory_bytes = options.memory_bytes;
  request.stop = stop;
  const SandboxResult result = sandbox.run(request);

  ToolResult shown;
  const std::string remark = remark_on(result, options);
  shown.ok = remark.empty();
  shown.text = utf8::repaired(result.output);
  while (shown.text.ends_with('\n')) shown.text.pop_back();
  if (!remark.empty()) shown.text += (shown.text.empty() ? "" : "\n") + remark;
  if (shown.text.empty()) shown.text = "[no output]";
  shown.code = code;
  return shown;
}

/// A model may put its program into a block, as it does in a text.
std::string code_of(const std::string& arguments) {
  const JsonDocument json = read_json(arguments);
  const auto code = json->value("code", std::string());
  return code.find("```") == std::string::npos ? code : last_code_block(code).value_or(code);
}

class PythonTool final : public Tool {
 public:
  explicit PythonTool(SandboxLayers layers) : sandbox_(layers) {}

  std::string name() const override { return "python"; }

  std::string check(const std::map<std::string, std::string>& options) const override { return wrong_in(options); }

  ToolDefinition definition() const override {
    return {"Runs a program in Python 3, alone and without a network, and returns what it prints.",
            R"({"type": "object", "properties": {"code": {"type": "string", "description": "the program"}},
                "required": ["code"], "additionalProperties": false})"};
  }

  ToolResult call(const ToolCall& call) const override {
    const PythonOptions options = options_of(call);
    if (!call.arguments.empty()) return run(sandbox_, code_of(call.arguments), options, call.stop);
    const std::optional<std::string> code = last_code_block(call.text);
    if (!code) return {false, "[no code: expected a block between ``` fences]"};
    return run(sandbox_, *code, options, call.stop);
  }

  std::vector<IsolationFact> isolation() const override { return sandbox_.isolation(); }

 private:
  Sandbox sandbox_;
};

/// Runs the function's code, with its arguments defined in front of it.
class PythonFunction final : public Tool {
 public:
  PythonFunction(std::string name, ToolDefinition definition, std::string code, SandboxLayers layers)
      : name_(std::move(name)), definition_(std::move(definition)), code_(std::move(code)), sandbox_(layers) {}

  std::string name() const override { return name_; }
  ToolDefinition definition() const override { return definition_; }

  std::string check(const std::map<std::string, std::string>& options) const override { return wrong_in(options); }

  ToolResult call(const ToolCall& call) const override {
    const PythonOptions options = options_of(call);
    // A string literal of JSON is one of Python, too.
    const std::string arguments =
        nlohmann::json(call.arguments).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return run(sandbox_, fmt::format("import json\narguments = json.loads({})\n{}", arguments, code_), options,
               call.stop);
  }

  std::vector<IsolationFact> isolation() const override { return sandbox_.isolation(); }

 private:
  std::string name_;
  ToolDefinition definition_;
  std::string code_;
  Sandbox sandbox_;
};

}  // namespace

std::shared_ptr<const Tool> make_python_tool(SandboxLayers layers) { return std::make_shared<PythonTool>(layers); }

std::shared_ptr<const Tool> make_python_function(std::string name, ToolDefinition definition, std::string code,
                                                 SandboxLayers layers) {
  return std::make_shared<PythonFunction>(std::move(name), std::move(definition), std::move(code), layers);
}

}  // namespace baton
