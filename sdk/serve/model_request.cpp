// SPDX-License-Identifier: Apache-2.0
// A plain model that is served: each request is a workflow of one agent, made of what the request asks for, so that
// sampling, tools and forms of answers are those of workflows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <baton/errors.h>

#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "sdk/serve/chat_request.h"

namespace baton::serve {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kAgent = "model";
constexpr const char* kConversation = "conversation";
constexpr int kMaxTokens = 2048;  // of an answer for which the request says no number
constexpr int kMaxCalls = 16;     // in one answer
constexpr int kMaxChoices = 16;
constexpr std::size_t kMaxTools = 256;

/// A number of a request, and the key of an agent that takes it.
struct NumberField {
  std::string_view name;
  const char* key;
  double low, high;
  bool integer = false;
};
constexpr std::array kNumbers = {
    NumberField{"temperature", "temperature", 0, 100},
    NumberField{"top_p", "top_p", 1e-9, 1},
    NumberField{"top_k", "top_k", -1, 1'000'000'000, true},
    NumberField{"min_p", "min_p", 0, 1},
    NumberField{"presence_penalty", "presence_penalty", -2, 2},
    NumberField{"frequency_penalty", "frequency_penalty", -2, 2},
    NumberField{"repetition_penalty", "repetition_penalty", 1e-9, 100},
    NumberField{"max_tokens", "max_tokens", 1, 1'000'000'000, true},
    NumberField{"max_completion_tokens", "max_tokens", 1, 1'000'000'000, true},
};

/// Fields that are read elsewhere, and those that change nothing about an answer.
constexpr std::array<std::string_view, 27> kOthers = {"model",
                                                      "messages",
                                                      "prompt",
                                                      "stream",
                                                      "stream_options",
                                                      "seed",
                                                      "baton",
                                                      "n",
                                                      "stop",
                                                      "tools",
                                                      "tool_choice",
                                                      "parallel_tool_calls",
                                                      "response_format",
                                                      "reasoning_effort",
                                                      "chat_template_kwargs",
                                                      "logprobs",
                                                      "top_logprobs",
                                                      "user",
                                                      "metadata",
                                                      "store",
                                                      "service_tier",
                                                      "safety_identifier",
                                                      "prompt_cache_key",
                                                      "best_of",
                                                      "echo",
                                                      "logit_bias",
                                                      "thinking_budget"};

/// Values that ask for nothing; any other is refused.
const std::vector<std::pair<const char*, json>>& unsupported() {
  static const std::vector<std::pair<const char*, json>> fields = {
      {"best_of", 1}, {"echo", false}, {"logit_bias", json::object()}};
  return fields;
}

ApiError unsupported(const std::string& param, const std::string& why) {
  return {400, "unsupported_parameter", fmt::format("{}: {}", param, why), param};
}

void check_fields(const json& body) {
  for (const auto& [name, value] : body.items()) {
    const bool known = std::ranges::find(kOthers, name) != kOthers.end() ||
                       std::ranges::find(kNumbers, std::string_view(name), &NumberField::name) != kNumbers.end();
    if (!known && !value.is_null()) throw unsupported(beginning(name, 60), "this field is not supported");
  }
  for (const auto& [name, nothing] : unsupported()) {
    const json* value = member_of(body, name);
    if (value != nullptr && *value != nothing) throw unsupported(name, "not supported");
  }
}

/// Values of variables would be those of the server's environment.
OrderedJson without_variables(const OrderedJson& value) {
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    for (std::size_t at = 0; (at = text.find("${", at)) != std::string::npos; at += 3) text.insert(at, "$");
    return text;
  }
  OrderedJson out = value;
  if (value.is_array()) {
    for (OrderedJson& one : out) one = without_variables(one);
  } else if (value.is_object()) {
    out = OrderedJson::object();
    for (const auto& [name, one] : value.items()) out[name] = without_variables(one);
  }
  return out;
}

/// Makes the agent of one request.
class ModelAgent {
 public:
  /// `ordered`: the same body with its keys in their order, in which models write what a schema asks for.
  ModelAgent(const json& body, const OrderedJson& ordered) : body_(body), ordered_(ordered) {
    agent_["prompt"] = {{"messages", OrderedJson::array({{{"history", kConversation}}})}};
    agent_["max_tokens"] = kMaxTokens;
    agent_["on_empty"] = "accept";
    for (const NumberField& field : kNumbers) read_number(field);
    read_stop();
    read_thinking();
    read_tools();
    read_form();
  }

  const OrderedJson& agent() const { return agent_; }
  const Tools& tools() const { return tools_; }
  bool calls() const { return calls_; }
  /// The field that a mistake is about which the workflow's own checks have found.
  const char* field_of(const std::string& mistake) const {
    constexpr std::array<std::pair<const char*, const char*>, 5> kWords = {{{"template", "chat_template_kwargs"},
                                                                            {"think", "thinking_budget"},
                                                                            {"stop", "stop"},
                                                                            {"output", "response_format"},
                                                                            {"schema", "response_format"}}};
    for (const auto& [word, field] : kWords)
      if (mistake.find(word) != std::string::npos && member_of(body_, field) != nullptr) return field;
    return "tools";
  }

 private:
  void read_number(const NumberField& field) {
    const json* value = member_of(body_, std::string(field.name).c_str());
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= field.low && number <= field.high) || (field.integer && !value->is_number_integer()))
      throw wrong_value(std::string(field.name),
                        fmt::format("{} from {} to {}", field.integer ? "an integer" : "a number",
                                    field.low > 0 && field.low < 1 ? 0 : field.low, field.high),
                        *value);
    agent_[field.key] = *value;
    if (number == -1 && field.key == std::string_view("top_k")) agent_[field.key] = 0;  // off, as vLLM writes it
  }

  void read_stop() {
    const json* stop = member_of(body_, "stop");
    if (stop == nullptr || (stop->is_array() && stop->empty())) return;
    const json texts = stop->is_array() ? *stop : json::array({*stop});
    for (const json& text : texts)
      if (!text.is_string() || text.get_ref<const std::string&>().empty())
        throw wrong_value("stop", "a text, or a list of texts", *stop);
    agent_["stop"] = texts;
  }

  void read_thinking() {
    if (const json* effort = member_of(body_, "reasoning_effort")) {
      const std::string word = effort->is_string() ? effort->get<std::string>() : "";
      if (word == "none") {
        agent_["think"] = false;
      } else if (word == "low" || word == "medium" || word == "high") {
        agent_["think"] = {{"enabled", true}, {"effort", word}};
      } else if (word == "minimal") {
        agent_["think"] = {{"enabled", true}, {"effort", "low"}};
      } else {
        throw wrong_value("reasoning_effort", "none, minimal, low, medium or high", *effort);
      }
    }
    if (const auto budget = body_.find("thinking_budget"); budget != body_.end()) {
      if (!budget->is_null() && !(budget->is_number_integer() && budget->get<double>() >= 0))
        throw wrong_value("thinking_budget", "an integer of at least 0", *budget);
      if (!agent_.contains("think") || !agent_["think"].is_object()) agent_["think"] = {{"enabled", true}};
      if (!budget->is_null()) agent_["think"]["budget"] = *budget;
    }
    if (const json* variables = member_of(body_, "chat_template_kwargs")) {
      if (!variables->is_object()) throw wrong_value("chat_template_kwargs", "an object", *variables);
      if (!variables->empty()) agent_["template"] = *variables;
    }
  }

  void read_tools() {
    const json* tools = member_of(body_, "tools");
    const json* choice = member_of(body_, "tool_choice");
    if (tools == nullptr || (tools->is_array() && tools->empty())) {
      if (choice != nullptr && *choice != "none" && *choice != "auto")
        throw wrong_value("tool_choice", "none or auto, as there are no tools", *choice);
      return;
    }
    if (!tools->is_array() || tools->size() > kMaxTools)
      throw wrong_value("tools", fmt::format("a list of at most {} tools", kMaxTools), *tools);
    if (agent_.contains("stop")) throw unsupported("stop", "not together with tools");
    for (std::size_t i = 0; i < tools->size(); ++i)
      add_tool((*tools)[i], ordered_["tools"][i], fmt::format("tools[{}]", i));
    OrderedJson limits = {{"direct", true}, {"repeat", true}, {"text", "forbidden"}, {"max", kMaxCalls}};
    const json* several = member_of(body_, "parallel_tool_calls");
    if (several != nullptr && !several->is_boolean())
      throw wrong_value("parallel_tool_calls", "true or false", *several);
    if (several != nullptr && !several->get<bool>()) limits["max"] = 1;
    if (choice != nullptr) limits["tool_choice"] = chosen(*choice);
    calls_ = limits.value("tool_choice", "auto") != "none";
    agent_["calls"] = std::move(limits);
  }

  /// The result of a call is the client's to make: here a call is what the answer is.
  void add_tool(const json& tool, const OrderedJson& ordered, const std::string& param) {
    const json* function = member_of(tool, "function");
    if (function == nullptr || !function->is_object() || tool.value("type", json("function")) != "function")
      throw wrong_value(param, "an object with type function and function", tool);
    const json* name = member_of(*function, "name");
    if (name == nullptr || !name->is_string())
      throw wrong_value(param + ".function.name", "a name", name ? *name : json());
    ToolDefinition definition{"", R"({"type": "object", "properties": {}})"};
    if (const json* text = member_of(*function, "description")) {
      if (!text->is_string()) throw wrong_value(param + ".function.description", "a text", *text);
      definition.description = text->get<std::string>();
    }
    if (const json* schema = member_of(*function, "parameters")) {
      if (!schema->is_object()) throw wrong_value(param + ".function.parameters", "a JSON Schema", *schema);
      if (!schema->empty()) definition.parameters = json_text(ordered["function"]["parameters"]);
    }
    const std::string of = name->get<std::string>();
    try {
      tools_.add(of, definition, [](const ToolCall&) { return ToolResult{true, ""}; });
    } catch (const std::invalid_argument& error) {
      throw ApiError(400, "invalid_value", fmt::format("{}.function: {}", param, error.what()), param);
    }
    agent_["tools"].push_back({{"call", of}});
  }

  std::string chosen(const json& choice) const {
    if (choice == "auto" || choice == "none" || choice == "required") return choice.get<std::string>();
    const json* function = member_of(choice, "function");
    const json* name = function != nullptr ? member_of(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string() || tools_.entries().count(name->get<std::string>()) == 0)
      throw wrong_value(
          "tool_choice",
          "auto, none, required, or one of the tools as {\"type\": \"function\", \"function\": {\"name\": ...}}",
          choice);
    const std::string of = name->get<std::string>();
    if (of == "auto" || of == "none" || of == "required")
      throw unsupported("tool_choice", fmt::format("a tool called '{}' cannot be chosen by its name", of));
    return of;
  }

  void read_form() {
    const json* format = member_of(body_, "response_format");
    const json* type = format != nullptr ? member_of(*format, "type") : nullptr;
    if (format == nullptr) return;
    if (type == nullptr)
      throw wrong_value("response_format", "an object with type text, json_object or json_schema", *format);
    if (*type == "text") return;
    OrderedJson output = {{"required", false}};  // an answer that is cut off is an answer
    if (*type == "json_object") {
      output["schema"] = {{"type", "object"}};
    } else if (*type == "json_schema") {
      const json* of = member_of(*format, "json_schema");
      const json* schema = of != nullptr ? member_of(*of, "schema") : nullptr;
      if (schema == nullptr || !schema->is_object())
        throw wrong_value("response_format", "json_schema as an object with a schema", *format);
      output["schema"] = ordered_["response_format"]["json_schema"]["schema"];
    } else {
      throw wrong_value("response_format.type", "text, json_object or json_schema", *type);
    }
    if (agent_.contains("stop"))
      throw unsupported("stop", "an answer that has a form ends by itself; leave out stop or response_format");
    agent_["output"] = std::move(output);
  }

  const json& body_;
  const OrderedJson& ordered_;
  OrderedJson agent_;
  Tools tools_;
  bool calls_ = false;
};

Workflow workflow_of(const std::string& name, const std::string& path, const OrderedJson& agent, const Tools& tools) {
  const OrderedJson file = {{"version", 1},
                            {"name", name},
                            {"inputs", {{kConversation, {{"type", "messages"}}}}},
                            {"models", {{"main", {{"path", without_variables(path)}}}}},
                            {"relay", "exact"},
                            {"agents", {{kAgent, without_variables(agent)}}},
                            {"outputs", {{"answer", fmt::format("{{{{ agent_{}_current }}}}", kAgent)}}}};
  WorkflowOptions options;
  options.tools = tools;
  return Workflow::parse(json_text(file), options, name + ".yaml");
}

int choices_of(const json& body) {
  const json* n = member_of(body, "n");
  if (n == nullptr) return 1;
  if (!n->is_number_integer() || n->get<double>() < 1 || n->get<double>() > kMaxChoices)
    throw wrong_value("n", fmt::format("an integer from 1 to {}", kMaxChoices), *n);
  return n->get<int>();
}

std::optional<int> logprobs_of(const json& body, const ChatRequest& request) {
  constexpr int kMax = 20;
  const json* wanted = member_of(body, "logprobs");
  const json* top = member_of(body, "top_logprobs");
  if (wanted == nullptr || *wanted == false) {
    if (top != nullptr && *top != 0) throw wrong_value("top_logprobs", "logprobs: true with it", *top);
    return std::nullopt;
  }
  if (!request.chat) throw unsupported("logprobs", "of chat completions only");
  if (*wanted != true) throw wrong_value("logprobs", "true or false", *wanted);
  if (request.workflow->answer < 0) throw unsupported("logprobs", "not together with tools");
  if (top == nullptr) return 0;
  if (!top->is_number_integer() || top->get<double>() < 0 || top->get<double>() > kMax)
    throw wrong_value("top_logprobs", fmt::format("an integer from 0 to {}", kMax), *top);
  return top->get<int>();
}

/// Texts in place of lists of parts; what else a message holds is read by the workflow.
json plain_messages(const json& body) {
  const json* messages = member_of(body, "messages");
  if (messages == nullptr) throw ApiError(400, "missing_value", "messages: expected a list of messages", "messages");
  if (!messages->is_array() || messages->empty())
    throw wrong_value("messages", "a list of at least one message", *messages);
  json out = json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const json& one = (*messages)[i];
    const std::string param = fmt::format("messages[{}]", i);
    const json* role = member_of(one, "role");
    if (role == nullptr || !role->is_string()) throw wrong_value(param, "an object with role and content", one);
    json told = {{"role", *role == "developer" ? json("system") : *role}};
    if (const json* content = member_of(one, "content")) told["content"] = content_text(*content, param + ".content");
    for (const char* key : {"tool_calls", "tool_call_id"})
      if (const json* value = member_of(one, key)) told[key] = *value;
    if (!told.contains("content") && !told.contains("tool_calls"))
      throw ApiError(400, "missing_value", param + ".content: expected a text", param);
    out.push_back(std::move(told));
  }
  if (out.back()["role"] == "assistant")
    throw wrong_value(fmt::format("messages[{}].role", out.size() - 1), "user, tool or system, of the last message",
                      "assistant");
  return out;
}

}  // namespace

ServedWorkflow serve_model(std::string name, std::string path) {
  const OrderedJson agent = {{"prompt", {{"messages", OrderedJson::array({{{"history", kConversation}}})}}}};
  ServedWorkflow served = serve_workflow(name, workflow_of(name, path, agent, {}));
  served.model = std::move(path);
  return served;
}

void read_model_request(const json& body, std::string_view text, ChatRequest& request) {
  check_fields(body);
  const ServedWorkflow& model = *request.workflow;
  const OrderedJson ordered = OrderedJson::parse(text);
  const ModelAgent agent(body, ordered);
  try {
    auto own = std::make_shared<ServedWorkflow>(
        serve_workflow(model.name, workflow_of(model.name, model.model, agent.agent(), agent.tools())));
    own->model = model.model;
    request.own = std::move(own);
  } catch (const WorkflowError& error) {
    const std::string& mistake = error.items.front().message;
    const char* field = agent.field_of(mistake);
    throw ApiError(400, "invalid_value", fmt::format("{}: {}", field, mistake), field);
  }
  request.workflow = request.own.get();
  request.calls = agent.calls();
  request.choices = choices_of(body);
  request.top_logprobs = logprobs_of(body, request);
  json messages;
  if (request.chat) {
    messages = plain_messages(body);
  } else {
    const json* prompt = member_of(body, "prompt");
    if (prompt != nullptr && prompt->is_array() && prompt->size() == 1) prompt = &prompt->front();
    if (prompt == nullptr) throw ApiError(400, "missing_value", "prompt: expected a text", "prompt");
    if (!prompt->is_string()) throw wrong_value("prompt", "one text", *prompt);
    messages = json::array({{{"role", "user"}, {"content", *prompt}}});
  }
  request.inputs[kConversation] = json_text(messages);
  if (!request.seed) request.seed = std::random_device()();  // answers differ, as clients expect; the reply names it
}

}  // namespace baton::serve
