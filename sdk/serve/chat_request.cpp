// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/chat_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <baton/errors.h>

#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"

namespace baton::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxName = 128;

bool may_be_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

struct InputNames {
  std::vector<std::string> texts, open, histories;
};

InputNames names_of(const Workflow& workflow, const std::map<std::string, std::string>& given) {
  InputNames names;
  for (const InputInfo& input : workflow.inputs()) {
    (input.messages ? names.histories : names.texts).push_back(input.name);
    if (!input.messages && input.required && given.count(input.name) == 0) names.open.push_back(input.name);
  }
  return names;
}

/// The input that messages fill; empty: there is no text input.
std::string message_of(const std::string& name, const InputNames& names) {
  if (names.open.size() == 1) return names.open.front();
  if (names.open.empty() && names.texts.size() == 1) return names.texts.front();
  if (names.texts.empty()) return {};
  throw InputError(
      fmt::format("workflow '{}': which input is the user's message? Expected one input that is required, found {}; "
                  "name it with --message {}=INPUT, one of: {}",
                  name, names.open.empty() ? "none" : fmt::format("{}", fmt::join(names.open, ", ")), name,
                  fmt::join(names.texts, ", ")));
}

OrderedJson json_of(const ServedWorkflow& served, long long created) {
  OrderedJson inputs = OrderedJson::array();
  for (const InputInfo& input : served.workflow.inputs()) {
    const auto fixed = served.inputs.find(input.name);
    const OrderedJson value = fixed != served.inputs.end() ? OrderedJson(fixed->second)
                              : input.default_value        ? OrderedJson(*input.default_value)
                                                           : OrderedJson(nullptr);
    inputs.push_back({{"name", input.name},
                      {"type", input.messages ? "messages" : "string"},
                      {"required", input.required && value.is_null()},
                      {"default", value},
                      {"description", input.description}});
  }
  OrderedJson agents = OrderedJson::array();
  for (const AgentInfo& agent : served.workflow.agents()) agents.push_back({{"id", agent.id}, {"role", agent.role}});
  const auto name_or_null = [](const std::string& name) {
    return name.empty() ? OrderedJson(nullptr) : OrderedJson(name);
  };
  return {{"id", served.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "baton"},
          {"baton",
           {{"message", name_or_null(served.message)},
            {"history", name_or_null(served.history)},
            {"streams", served.answer >= 0},
            {"inputs", std::move(inputs)},
            {"agents", std::move(agents)}}}};
}

}  // namespace

ServedWorkflow serve_workflow(std::string name, Workflow workflow, const std::string& message,
                              std::map<std::string, std::string> inputs) {
  const std::vector<TurnInfo> turns = workflow.turns();
  const auto asks = std::find_if(turns.begin(), turns.end(), [](const TurnInfo& turn) { return turn.asks; });
  if (asks != turns.end())
    throw InputError(
        fmt::format("workflow '{}': its step '{}' asks a person, and a server has nobody to ask", name, asks->id));
  const InputNames names = names_of(workflow, inputs);
  for (const auto& [input, value] : inputs) {
    const bool known = std::count(names.texts.begin(), names.texts.end(), input) +
                           std::count(names.histories.begin(), names.histories.end(), input) >
                       0;
    if (!known) throw InputError(fmt::format("workflow '{}': unknown input '{}'", name, input));
  }
  if (names.histories.size() > 1)
    throw InputError(
        fmt::format("workflow '{}': which input is the conversation? Expected at most one of type "
                    "messages, found {}",
                    name, fmt::join(names.histories, ", ")));
  if (!message.empty() && std::count(names.texts.begin(), names.texts.end(), message) == 0)
    throw InputError(
        fmt::format("workflow '{}': expected the name of a text input for its messages, found '{}'; its "
                    "text inputs are: {}",
                    name, message, fmt::join(names.texts, ", ")));
  ServedWorkflow served{std::move(name), std::move(workflow), message, {}, std::move(inputs)};
  if (served.message.empty()) served.message = message_of(served.name, names);
  if (!names.histories.empty()) served.history = names.histories.front();
  if (served.message.empty() && served.history.empty())
    throw InputError(fmt::format("workflow '{}': it has no inputs, so that no message can reach it", served.name));
  const auto answers = std::find_if(turns.begin(), turns.end(), [](const TurnInfo& turn) { return turn.answers; });
  for (const TurnInfo& turn : turns) {
    if (turn.in_outputs) served.shown.insert(turn.agent);
  }
  if (answers != turns.end()) served.answer = static_cast<int>(answers - turns.begin());
  return served;
}

void ServedWorkflows::add(ServedWorkflow workflow) {
  const std::string& name = workflow.name;
  if (name.empty() || name.size() > kMaxName || !std::all_of(name.begin(), name.end(), may_be_in_name))
    throw InputError(
        fmt::format("'{}' cannot be the name of a model: expected 1 to {} letters, digits, '.', '_' and "
                    "'-'; rename the file, or give NAME=FILE",
                    name, kMaxName));
  if (find(name) != nullptr)
    throw InputError(fmt::format("two workflows are called '{}'; give one of them another name with NAME=FILE", name));
  workflows_.push_back(std::move(workflow));
}

const ServedWorkflow* ServedWorkflows::find(std::string_view name) const {
  const auto at = std::find_if(workflows_.begin(), workflows_.end(), [&](const auto& one) { return one.name == name; });
  return at == workflows_.end() ? nullptr : &*at;
}

std::string ServedWorkflows::names() const {
  std::vector<std::string> names;
  for (const ServedWorkflow& one : workflows_) names.push_back(one.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string model_json(const ServedWorkflow& workflow, long long created) {
  return json_text(json_of(workflow, created));
}

std::string models_json(const ServedWorkflows& workflows, long long created) {
  OrderedJson data = OrderedJson::array();
  for (const ServedWorkflow& one : workflows.all()) data.push_back(json_of(one, created));
  return json_text(OrderedJson{{"object", "list"}, {"data", std::move(data)}});
}

namespace {

const char* type_of(int status) {
  if (status >= 500) return "server_error";
  if (status == 401 || status == 403) return "authentication_error";
  return status == 429 ? "rate_limit_error" : "invalid_request_error";
}

}  // namespace

std::string error_json(const ApiError& error) {
  using Json = nlohmann::ordered_json;
  const Json param = error.param.empty() ? Json(nullptr) : Json(error.param);
  const Json body = {
      {"message", error.what()}, {"type", type_of(error.status)}, {"param", param}, {"code", error.code}};
  return json_text(Json{{"error", body}});
}

namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessages = 10'000;
constexpr JsonLimits kLimits{.max_depth = 32, .max_values = 200'000, .max_bytes = std::size_t{256} << 20};

/// Fields that ask for an answer of another form, with the value that asks for nothing. Those about sampling
/// (temperature, max_tokens, stop and so on) are settings of the workflow and are not read.
const std::vector<std::pair<const char*, json>>& refused_fields() {
  static const std::vector<std::pair<const char*, json>> fields = {
      {"n", 1},
      {"best_of", 1},
      {"echo", false},
      {"suffix", ""},
      {"logprobs", false},
      {"top_logprobs", 0},
      {"tools", json::array()},
      {"tool_choice", "none"},
      {"functions", json::array()},
      {"function_call", "none"},
      {"response_format", json{{"type", "text"}}},
      {"modalities", json::array({"text"})},
      {"audio", json::object()},
  };
  return fields;
}

bool flag(const json& object, const char* name, const std::string& param) {
  const json* value = member_of(object, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) throw wrong_value(param, "true or false", *value);
  return value->get<bool>();
}

}  // namespace

ApiError wrong_value(const std::string& param, const std::string& expected, const json& found) {
  return {400, "invalid_value",
          fmt::format("{}: expected {}, found {}", param, expected, beginning(json_text(found), 60)), param};
}

const json* member_of(const json& object, const char* name) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string content_text(const json& content, const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw wrong_value(param, "a text or a list of parts", content);
  std::string text;
  for (const json& part : content) {
    const json* type = part.is_object() ? member_of(part, "type") : nullptr;
    const json* of_part = part.is_object() ? member_of(part, "text") : nullptr;
    const bool is_text = type != nullptr && (*type == "text" || *type == "input_text" || *type == "output_text");
    if (!is_text || of_part == nullptr || !of_part->is_string()) throw wrong_value(param, "parts of type text", part);
    text += (text.empty() ? "" : "\n") + of_part->get<std::string>();
  }
  return text;
}

namespace {

void check_refused(const json& body) {
  const json* choice = member_of(body, "tool_choice");
  const bool calls_nothing = choice != nullptr && *choice == "none";
  for (const auto& [name, nothing] : refused_fields()) {
    const json* value = member_of(body, name);
    if (value == nullptr || *value == nothing || (value->is_array() && value->empty())) continue;
    if (calls_nothing && std::string_view(name) == "tools") continue;
    throw ApiError(400, "unsupported_parameter",
                   fmt::format("{}: {} is not supported; a workflow decides it in its file", name,
                               beginning(json_text(*value), 60)),
                   name);
  }
}

/// Fields of a request for a workflow that change nothing about its answer.
std::vector<std::string> unread_fields(const json& body) {
  static const std::set<std::string, std::less<>> kRead = {"model", "messages", "prompt", "stream",  "stream_options",
                                                           "seed",  "baton",    "user",   "metadata"};
  std::vector<std::string> unread;
  for (const auto& [name, value] : body.items()) {
    bool refused = false;
    for (const auto& field : refused_fields()) refused = refused || field.first == name;
    if (!value.is_null() && !kRead.contains(name) && !refused) unread.push_back(beginning(name, 60));
  }
  return unread;
}

/// The fields that both interfaces share.
ChatRequest read_settings(const json& body, const ServedWorkflows& workflows) {
  if (!body.is_object())
    throw ApiError(400, "invalid_json", fmt::format("expected a JSON object, found {}", body.type_name()));
  ChatRequest request;
  const json* model = member_of(body, "model");
  if (model == nullptr) throw ApiError(400, "missing_value", "model: expected the name of a workflow", "model");
  if (!model->is_string()) throw wrong_value("model", "the name of a workflow", *model);
  request.workflow = workflows.find(model->get<std::string>());
  if (request.workflow == nullptr)
    throw ApiError(404, "model_not_found",
                   fmt::format("model: unknown workflow '{}'; expected one of: {}",
                               beginning(model->get<std::string>(), 60), workflows.names()),
                   "model");
  if (request.workflow->model.empty()) {
    check_refused(body);
    request.unread_fields = unread_fields(body);
  }
  request.inputs = request.workflow->inputs;
  if (const json* seed = member_of(body, "seed")) {
    if (!seed->is_number_integer()) throw wrong_value("seed", "an integer", *seed);
    request.seed =
        seed->is_number_unsigned() ? seed->get<std::uint64_t>() : static_cast<std::uint64_t>(seed->get<std::int64_t>());
  }
  request.stream = flag(body, "stream", "stream");
  if (const json* options = member_of(body, "stream_options")) {
    if (!options->is_object()) throw wrong_value("stream_options", "an object", *options);
    if (!request.stream)
      throw ApiError(400, "invalid_value", "stream_options: expected only with stream: true", "stream_options");
    request.include_usage = flag(*options, "include_usage", "stream_options.include_usage");
  }
  return request;
}

/// The field `baton`: other inputs, and whether the run's events are wanted.
void read_extension(const json& body, ChatRequest& request) {
  const json* extension = member_of(body, "baton");
  if (extension == nullptr) return;
  if (!extension->is_object()) throw wrong_value("baton", "an object", *extension);
  for (const auto& [name, value] : extension->items()) {
    if (name != "events" && name != "inputs")
      throw ApiError(400, "invalid_value",
                     fmt::format("baton: unknown member '{}'; expected events or inputs", beginning(name, 60)),
                     "baton");
  }
  request.events = flag(*extension, "events", "baton.events");
  if (request.events && !request.stream)
    throw ApiError(400, "invalid_value", "baton.events: events are a part of a stream; expected stream: true",
                   "baton.events");
  const json* inputs = member_of(*extension, "inputs");
  if (inputs == nullptr) return;
  if (!inputs->is_object()) throw wrong_value("baton.inputs", "an object", *inputs);
  for (const auto& [name, value] : inputs->items()) {
    const std::string param = "baton.inputs." + beginning(name, 60);
    const bool is_history = name == request.workflow->history;
    const bool filled = request.chat || request.workflow->message.empty();  // the history, by the request's messages
    if (name == request.workflow->message || (is_history && filled))
      throw ApiError(400, "invalid_value", param + ": the messages fill this input", param);
    request.inputs[name] = value.is_string() ? value.get<std::string>() : json_text(value);
  }
}

/// A message's role as workflows know it.
std::string role_of(const json& message, const std::string& param) {
  const json* role = message.is_object() ? member_of(message, "role") : nullptr;
  if (role == nullptr) throw wrong_value(param, "an object with role and content", message);
  if (*role == "developer") return "system";
  if (*role == "system" || *role == "user" || *role == "assistant" || *role == "tool") return role->get<std::string>();
  throw wrong_value(param + ".role", "system, developer, user, assistant or tool", *role);
}

void read_messages(const json& body, ChatRequest& request) {
  const json* messages = member_of(body, "messages");
  if (messages == nullptr) throw ApiError(400, "missing_value", "messages: expected a list of messages", "messages");
  if (!messages->is_array() || messages->empty())
    throw wrong_value("messages", "a list of at least one message", *messages);
  if (messages->size() > kMaxMessages)
    throw ApiError(400, "invalid_value",
                   fmt::format("messages: expected at most {}, found {}", kMaxMessages, messages->size()), "messages");
  json history = json::array();
  std::string last;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const json& one = (*messages)[i];
    const std::string param = fmt::format("messages[{}]", i);
    const std::string role = role_of(one, param);
    const json* content = member_of(one, "content");
    const json* calls = role == "assistant" ? member_of(one, "tool_calls") : nullptr;
    if (content == nullptr && calls == nullptr)
      throw ApiError(400, "missing_value", param + ".content: expected a text", param);
    std::string text = content == nullptr ? std::string() : content_text(*content, param + ".content");
    const bool is_last = i + 1 == messages->size();
    if (is_last && role != "user") throw wrong_value(param + ".role", "user, of the last message", role);
    if (is_last && !request.workflow->message.empty())
      last = std::move(text);
    else
      history.push_back({{"role", role}, {"content", std::move(text)}});
    if (calls != nullptr) history.back()["tool_calls"] = *calls;
    if (const json* id = member_of(one, "tool_call_id"); id != nullptr && role == "tool")
      history.back()["tool_call_id"] = *id;
  }
  if (!request.workflow->message.empty()) request.inputs[request.workflow->message] = std::move(last);
  if (request.workflow->history.empty())
    request.unread_messages = static_cast<int>(history.size());
  else
    request.inputs[request.workflow->history] = json_text(history);
}

void read_prompt(const json& body, ChatRequest& request) {
  const json* prompt = member_of(body, "prompt");
  if (prompt == nullptr) throw ApiError(400, "missing_value", "prompt: expected a text", "prompt");
  if (prompt->is_array() && prompt->size() == 1) prompt = &prompt->front();
  if (!prompt->is_string()) throw wrong_value("prompt", "one text", *prompt);
  if (!request.workflow->message.empty()) {
    request.inputs[request.workflow->message] = prompt->get<std::string>();
    if (!request.workflow->history.empty()) request.inputs.try_emplace(request.workflow->history, "[]");
  } else {
    request.inputs[request.workflow->history] = json_text(json::array({{{"role", "user"}, {"content", *prompt}}}));
  }
}

ChatRequest read(std::string_view body, const ServedWorkflows& workflows, bool chat) {
  JsonDocument document;
  try {
    document = read_json(body, kLimits);
  } catch (const JsonError& error) {
    throw ApiError(400, "invalid_json", fmt::format("the body is not JSON: {}", error.what()));
  }
  ChatRequest request = read_settings(*document, workflows);
  request.chat = chat;
  read_extension(*document, request);
  if (!request.workflow->model.empty())
    read_model_request(*document, body, request);
  else if (chat)
    read_messages(*document, request);
  else
    read_prompt(*document, request);
  return request;
}

}  // namespace

ChatRequest read_chat(std::string_view body, const ServedWorkflows& workflows) { return read(body, workflows, true); }

ChatRequest read_completion(std::string_view body, const ServedWorkflows& workflows) {
  return read(body, workflows, false);
}

}  // namespace baton::serve
