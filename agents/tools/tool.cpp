// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/tool.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "agents/tools/python_tool.h"
#include "agents/tools/tool_format.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/schema/schema.h"

namespace baton {

ToolRegistry ToolRegistry::with_builtins() {
  ToolRegistry registry;
  registry.add(make_python_tool());
  return registry;
}

void ToolRegistry::add(std::shared_ptr<const Tool> tool) {
  std::string name = tool->name();
  const auto [at, added] = tools_.try_emplace(std::move(name), std::move(tool));
  if (!added) throw std::invalid_argument("tool '" + at->first + "' is registered already");
}

const Tool* ToolRegistry::find(const std::string& name) const {
  const auto at = tools_.find(name);
  return at == tools_.end() ? nullptr : at->second.get();
}

std::vector<std::string> ToolRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tool] : tools_) names.push_back(name);
  return names;
}

namespace {

constexpr std::size_t kMaxCallsRead = 64;  // in one answer
constexpr std::size_t kMaxProblem = 500;   // bytes; it may quote the answer
constexpr std::string_view kBlanksAndCommas = " \t\r\n,";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanksAndCommas);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanksAndCommas) - begin + 1);
}

ModelCall read_call(const nlohmann::json& object, const CallSyntax& syntax, const CallableTools& tools) {
  ModelCall call;
  if (!object.is_object() || !object.contains(syntax.name_key) || !object[syntax.name_key].is_string()) {
    call.problem =
        fmt::format("the call is no object with the keys '{}' and '{}'", syntax.name_key, syntax.arguments_key);
    return call;
  }
  call.tool = object[syntax.name_key].get<std::string>();
  nlohmann::json arguments = nlohmann::json::object();
  if (object.contains(syntax.arguments_key)) arguments = object[syntax.arguments_key];
  if (arguments.is_string()) arguments = *read_json(arguments.get_ref<const std::string&>());  // as OpenAI writes them
  call.arguments = json_text(arguments);
  const CallableTool* tool = tools.find(call.tool);
  if (tool == nullptr) {
    call.problem = fmt::format("there is no tool '{}'; the tools are:", beginning(call.tool, 64));
    for (const ToolSchema& one : tools.schemas()) call.problem += " " + one.name;
  } else if (!arguments.is_object()) {
    call.problem = fmt::format("'{}' is no object", syntax.arguments_key);
  } else if (const std::string wrong = check_json(call.arguments, tool->schema.parameters); !wrong.empty()) {
    call.problem = "the arguments do not fit the schema: " + wrong;
  }
  return call;
}

/// Appends the calls of a value of JSON: one, or a list of them.
void read_calls(std::string_view json, const CallSyntax& syntax, const CallableTools& tools,
                std::vector<ModelCall>& calls) {
  const auto add = [&](const nlohmann::json& object) {
    ModelCall call;
    try {
      call = read_call(object, syntax, tools);
    } catch (const std::exception& error) {
      call.problem = error.what();
    }
    call.problem = beginning(call.problem, kMaxProblem);
    if (calls.size() < kMaxCallsRead) calls.push_back(std::move(call));
  };
  try {
    const JsonDocument value = read_json(json);
    if (!value->is_array()) return add(*value);
    for (const nlohmann::json& one : *value) add(one);
  } catch (const JsonError& error) {
    calls.push_back({"", "", beginning(fmt::format("the call is not JSON: {}", error.what()), kMaxProblem)});
  }
}

/// An answer that is nothing but calls of known tools, without their marker.
std::vector<ModelCall> bare_calls(std::string_view answer, const CallSyntax& syntax, const CallableTools& tools) {
  std::string_view text = trimmed(answer);
  std::optional<std::string> block;
  if (text.starts_with("```")) {
    block = last_code_block(text);
    if (block && text.find("```", 3) == text.rfind("```")) text = trimmed(*block);
  }
  if (!text.starts_with('{') && !text.starts_with('[')) return {};
  std::vector<ModelCall> calls;
  while (!text.empty() && calls.size() < kMaxCallsRead) {
    const bool opens = text.front() == '{' || text.front() == '[';
    const std::size_t end = opens ? value_end(text).value_or(text.size()) : text.size();
    read_calls(text.substr(0, end), syntax, tools, calls);
    text = trimmed(text.substr(end));
  }
  const bool known = !calls.empty() && std::all_of(calls.begin(), calls.end(), [&](const ModelCall& call) {
    return tools.find(call.tool) != nullptr;
  });
  return known ? calls : std::vector<ModelCall>();
}

}  // namespace

CallableTools::CallableTools(std::vector<CallableTool> tools, CallLimits limits, std::shared_ptr<const Grammar> answer,
                             std::vector<ServerTools> servers)
    : tools_(std::move(tools)), limits_(limits), answer_(std::move(answer)), servers_(std::move(servers)) {
  for (const CallableTool& tool : tools_) schemas_.push_back(tool.schema);
}

std::shared_ptr<const CallableTools> CallableTools::with(std::vector<CallableTool> more) const {
  more.insert(more.begin(), tools_.begin(), tools_.end());
  return std::make_shared<const CallableTools>(std::move(more), limits_, answer_);
}

const CallableTool* CallableTools::find(const std::string& name) const {
  const auto found =
      std::find_if(tools_.begin(), tools_.end(), [&](const CallableTool& tool) { return tool.schema.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

std::shared_ptr<const Grammar> CallableTools::grammar(const ToolFormat& format, int calls_left) const {
  if (!limits_.enforce || !format.enforceable) return calls_left > 0 ? nullptr : answer_;
  const CallSyntax& syntax = format.syntax;
  const std::string key = fmt::format("{} {} {} {} {} {}", calls_left, syntax.list, syntax.name_key,
                                      syntax.arguments_key, syntax.open, syntax.close);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Grammar>& grammar = grammars_[key];
  if (grammar == nullptr) {
    grammar = answer_ ? answer_ : text_grammar(syntax, calls_left > 0);
    if (calls_left > 0)
      grammar = std::make_shared<const Grammar>(*grammar, *call_grammar(syntax, schemas_, calls_left, !answer_));
  }
  return grammar;
}

std::vector<ModelCall> calls_in(const std::string& answer, const ToolFormat& format, const CallableTools& tools) {
  const std::string marker = format.syntax.marker();
  std::vector<ModelCall> calls;
  std::size_t at = marker.empty() ? std::string::npos : answer.find(marker);
  if (at == std::string::npos) return bare_calls(answer, format.syntax, tools);
  while (at != std::string::npos && calls.size() < kMaxCallsRead) {
    at = std::min(answer.find_first_not_of(kBlanksAndCommas, at + marker.size()), answer.size());
    const std::string_view rest = std::string_view(answer).substr(at);
    const std::size_t end = value_end(rest).value_or(rest.size());
    read_calls(rest.substr(0, end), format.syntax, tools, calls);
    at = answer.find(marker, at + end);
  }
  return calls;
}

std::string shown_result(const std::string& text, std::size_t max_bytes) {
  std::string shown = utf8::repaired(text);
  for (char& c : shown) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    if (control) c = ' ';
  }
  if (shown.size() <= max_bytes) return shown;
  std::size_t first = max_bytes / 2, last = shown.size() - max_bytes / 2;
  while (first > 0 && utf8::continues(shown[first])) --first;
  while (last < shown.size() && utf8::continues(shown[last])) ++last;
  return fmt::format("{}\n[... {} bytes left out ...]\n{}", shown.substr(0, first), last - first, shown.substr(last));
}

}  // namespace baton
