// SPDX-License-Identifier: Apache-2.0
// Tools and workflows of baton/c.h.
#include "engine/base/utf8.h"
#include "workflows/run/record_json.h"

#include "sdk/src/c_support.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

using namespace baton::c_face;
using OrderedJson = nlohmann::ordered_json;

struct baton_tools {
  baton::Tools tools;
};

struct baton_tool_call {
  std::string text;
  std::map<std::string, std::string> options;
  std::string options_json;
  std::string arguments;
  std::chrono::milliseconds timeout;
  std::stop_token stop;
  std::string result;
};

baton_status baton_tools_create(baton_tools** tools, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(tools, "tools");
    result = new baton_tools();
    return BATON_OK;
  });
}

namespace {

void add_tool(baton_tools* tools, const char* name, baton::ToolDefinition definition, baton_tool_callback callback,
              void* user_data) {
  required(tools, "tools");
  const std::string read_name = read_text(name, "name");
  if (callback == nullptr) throw baton::InputError("callback is NULL");
  tools->tools.add(read_name, std::move(definition), [callback, user_data](const baton::ToolCall& call) {
    baton_tool_call given{baton::utf8::repaired(call.text), {}, {}, call.arguments, call.timeout, call.stop, {}};
    for (const auto& [key, value] : call.options) given.options[key] = baton::utf8::repaired(value);
    given.options_json = baton::dump(OrderedJson(given.options), -1);
    const bool ok = callback(&given, user_data);
    if (!ok && given.result.empty()) given.result = "error: the tool failed";
    return baton::ToolResult{ok, std::move(given.result)};
  });
}

}  // namespace

baton_status baton_tools_add(baton_tools* tools, const char* name, baton_tool_callback callback, void* user_data,
                             baton_error** error) {
  return guarded(error, [&] {
    add_tool(tools, name, {}, callback, user_data);
    return BATON_OK;
  });
}

baton_status baton_tools_add_callable(baton_tools* tools, const char* name, const char* description,
                                      const char* parameters, baton_tool_callback callback, void* user_data,
                                      baton_error** error) {
  return guarded(error, [&] {
    baton::ToolDefinition definition{read_optional_text(description, "description"),
                                     read_text(parameters, "parameters")};
    if (definition.parameters.empty()) throw baton::InputError("parameters is empty");
    add_tool(tools, name, std::move(definition), callback, user_data);
    return BATON_OK;
  });
}

void baton_tools_free(baton_tools* tools) { delete tools; }

const char* baton_tool_call_text(const baton_tool_call* call, size_t* length) {
  if (length != nullptr) *length = call == nullptr ? 0 : call->text.size();
  return call == nullptr ? "" : call->text.c_str();
}

const char* baton_tool_call_option(const baton_tool_call* call, const char* name) {
  if (call == nullptr || name == nullptr) return nullptr;
  for (const auto& [key, value] : call->options) {
    if (key == name) return value.c_str();
  }
  return nullptr;
}

const char* baton_tool_call_options(const baton_tool_call* call) {
  return call == nullptr ? "{}" : call->options_json.c_str();
}

const char* baton_tool_call_arguments(const baton_tool_call* call) {
  return call == nullptr ? "" : call->arguments.c_str();
}

int64_t baton_tool_call_timeout_ms(const baton_tool_call* call) { return call == nullptr ? 0 : call->timeout.count(); }

bool baton_tool_call_stop_requested(const baton_tool_call* call) {
  return call != nullptr && call->stop.stop_requested();
}

baton_status baton_tool_call_return(baton_tool_call* call, const char* text, baton_error** error) {
  return guarded(error, [&] {
    required(text, "text");
    required(call, "call").result = read_optional_text(text, "text");
    return BATON_OK;
  });
}

namespace {

baton_workflow_options read(const baton_workflow_options* options) {
  constexpr std::size_t first = offsetof(baton_workflow_options, name) + sizeof(const char*);
  return read_options(options, first, "baton_workflow_options");
}

/// Reads a workflow with `read_workflow`, given the options of C++.
template <typename Read>
baton_workflow* make_workflow(const baton_workflow_options& options, Read read_workflow) {
  baton::WorkflowOptions translated;
  if (options.tools != nullptr) translated.tools = options.tools->tools;
  translated.set = read_pairs(options.set, options.set_count, "set");
  return new baton_workflow{read_workflow(translated)};
}

}  // namespace

void baton_workflow_options_init(baton_workflow_options* options, size_t size) { init_options(options, size); }

baton_status baton_workflow_load(baton_workflow** workflow, const char* file, const baton_workflow_options* options,
                                 baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(workflow, "workflow");
    const std::string path = read_text(file, "file");
    result = make_workflow(read(options), [&](const baton::WorkflowOptions& translated) {
      return baton::Workflow::load(path, translated);
    });
    return BATON_OK;
  });
}

baton_status baton_workflow_parse(baton_workflow** workflow, const char* yaml, const baton_workflow_options* options,
                                  baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(workflow, "workflow");
    required(yaml, "yaml");
    const baton_workflow_options known = read(options);
    const std::string name = known.name == nullptr ? "workflow.yaml" : read_text(known.name, "name");
    result = make_workflow(known, [&](const baton::WorkflowOptions& translated) {
      return baton::Workflow::parse(yaml, translated, name);
    });
    return BATON_OK;
  });
}

baton_status baton_workflow_describe(char** json, const baton_workflow* workflow, baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(json, "json");
    const baton::Workflow& of = required(workflow, "workflow").workflow;
    OrderedJson inputs = OrderedJson::array(), agents = OrderedJson::array();
    for (const auto& input : of.inputs()) {
      inputs.push_back({{"name", input.name},
                        {"required", input.required},
                        {"default", input.default_value ? OrderedJson(*input.default_value) : OrderedJson(nullptr)},
                        {"description", input.description}});
    }
    for (const auto& agent : of.agents()) {
      agents.push_back({{"id", agent.id}, {"role", agent.role}, {"has_answer", agent.has_answer}});
    }
    const OrderedJson all = {{"name", of.name()}, {"inputs", inputs}, {"agents", agents}, {"outputs", of.outputs()}};
    result = new_text(baton::dump(all, 2));
    return BATON_OK;
  });
}

baton_status baton_workflow_graph(char** text, const baton_workflow* workflow, const char* format,
                                  baton_error** error) {
  return guarded(error, [&] {
    auto& result = result_place(text, "text");
    result = new_text(required(workflow, "workflow").workflow.graph(read_text(format, "format")));
    return BATON_OK;
  });
}

void baton_workflow_free(baton_workflow* workflow) { delete workflow; }
