// SPDX-License-Identifier: Apache-2.0
#include "agents/python_tool.h"

#include <fmt/format.h>

#include <stdexcept>

#include "agents/code_block.h"
#include "agents/python_options.h"
#include "agents/sandbox.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"

namespace baton {
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

/// The function's code, behind its arguments.
class PythonFunction final : public Tool {
 public:
  PythonFunction(std::string name, ToolDefinition definition, std::string code, SandboxLayers layers)
      : name_(std::move(name)), definition_(std::move(definition)), code_(std::move(code)), sandbox_(layers) {}

  std::string name() const override { return name_; }
  ToolDefinition definition() const override { return definition_; }

  std::string check(const std::map<std::string, std::string>& options) const override { return wrong_in(options); }

  ToolResult call(const ToolCall& call) const override {
    const PythonOptions options = options_of(call);
    // A text in JSON is one in Python, too.
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
