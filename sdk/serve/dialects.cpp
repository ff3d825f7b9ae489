// SPDX-License-Identifier: Apache-2.0
// Anthropic's Messages and OpenAI's Responses, as translations to chat completions and back: requests, whole answers
// and the chunks of streams.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "sdk/serve/chat_request.h"
#include "sdk/serve/served_run.h"

namespace baton::serve {
namespace {

using Json = nlohmann::ordered_json;
using nlohmann::json;

std::string text_at(const json& object, const char* name, const std::string& param) {
  const json* value = member_of(object, name);
  if (value == nullptr || !value->is_string())
    throw wrong_value(param + "." + name, "a text", value == nullptr ? json() : *value);
  return value->get<std::string>();
}

JsonDocument read_body(std::string_view body) {
  constexpr JsonLimits kLimits{.max_depth = 32, .max_values = 200'000, .max_bytes = std::size_t{256} << 20};
  try {
    JsonDocument document = read_json(body, kLimits);
    if (!document->is_object())
      throw ApiError(400, "invalid_json", fmt::format("expected a JSON object, found {}", document->type_name()));
    return document;
  } catch (const JsonError& error) {
    throw ApiError(400, "invalid_json", fmt::format("the body is not JSON: {}", error.what()));
  }
}

/// Copies fields that both have under the name that chat completions have, and refuses those that nobody knows.
class RequestFields {
 public:
  RequestFields(const json& body, json& chat) : body_(body), chat_(chat) {}

  void copy(const char* name, const char* as) {
    known_.push_back(name);
    if (const json* value = member_of(body_, name)) chat_[as] = *value;
  }
  void copy(const char* name) { copy(name, name); }
  /// What is read elsewhere, or changes nothing.
  void skip(std::initializer_list<std::string> names) { known_.insert(known_.end(), names); }

  void end() const {
    for (const auto& [name, value] : body_.items()) {
      if (value.is_null() || std::ranges::find(known_, name) != known_.end()) continue;
      throw ApiError(400, "unsupported_parameter", fmt::format("{}: this field is not supported", beginning(name, 60)),
                     beginning(name, 60));
    }
  }

 private:
  const json& body_;
  json& chat_;
  std::vector<std::string> known_;
};

json function_tool(const json& name, const json* description, const json* parameters) {
  json function = {{"name", name}};
  if (description != nullptr) function["description"] = *description;
  if (parameters != nullptr) function["parameters"] = *parameters;
  return {{"type", "function"}, {"function", std::move(function)}};
}

json call_of(const std::string& id, const std::string& name, const std::string& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

// Anthropic's Messages.

/// The blocks of a message as messages of a chat: results of tools, then the text.
void add_blocks(json& messages, const json& message, const std::string& param) {
  const std::string role = text_at(message, "role", param);
  if (role != "user" && role != "assistant") throw wrong_value(param + ".role", "user or assistant", role);
  const json* content = member_of(message, "content");
  if (content == nullptr) throw wrong_value(param + ".content", "a text or a list of blocks", json());
  if (content->is_string()) return messages.push_back({{"role", role}, {"content", *content}});
  if (!content->is_array()) throw wrong_value(param + ".content", "a text or a list of blocks", *content);
  std::string text;
  bool has_text = false;
  json calls = json::array();
  for (const json& block : *content) {
    const std::string type = text_at(block, "type", param + ".content");
    if (type == "text") {
      text += (has_text ? "\n" : "") + text_at(block, "text", param + ".content");
      has_text = true;
    } else if (type == "tool_use") {
      const json* input = member_of(block, "input");
      calls.push_back(call_of(text_at(block, "id", param), text_at(block, "name", param),
                              json_text(input == nullptr ? json::object() : *input)));
    } else if (type == "tool_result") {
      const json* result = member_of(block, "content");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", text_at(block, "tool_use_id", param)},
                          {"content", result == nullptr ? "" : content_text(*result, param + ".content")}});
    } else if (type != "thinking" && type != "redacted_thinking") {
      throw wrong_value(param + ".content", "blocks of type text, thinking, tool_use or tool_result", block);
    }
  }
  if (!has_text && calls.empty()) return;
  json made = {{"role", role}};
  if (has_text) made["content"] = text;
  if (!calls.empty()) made["tool_calls"] = std::move(calls);
  messages.push_back(std::move(made));
}

void read_choice(const json& body, json& chat) {
  const json* choice = member_of(body, "tool_choice");
  if (choice == nullptr) return;
  const std::string type = text_at(*choice, "type", "tool_choice");
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", text_at(*choice, "name", "tool_choice")}}}};
  } else if (type == "auto" || type == "any" || type == "none") {
    chat["tool_choice"] = type == "any" ? "required" : type;
  } else {
    throw wrong_value("tool_choice.type", "auto, any, tool or none", type);
  }
  if (const json* one = member_of(*choice, "disable_parallel_tool_use"); one != nullptr && *one == true)
    chat["parallel_tool_calls"] = false;
}

void read_thinking(const json& body, json& chat) {
  const json* thinking = member_of(body, "thinking");
  if (thinking == nullptr) return;
  const std::string type = text_at(*thinking, "type", "thinking");
  if (type == "disabled") {
    chat["reasoning_effort"] = "none";
  } else if (type == "enabled" || type == "adaptive") {
    chat["thinking_budget"] = member_of(*thinking, "budget_tokens") != nullptr ? (*thinking)["budget_tokens"] : json();
  } else {
    throw wrong_value("thinking.type", "enabled, adaptive or disabled", type);
  }
}

const char* stop_reason_of(const std::string& reason) {
  if (reason == "tool_calls") return "tool_use";
  return reason == "length" ? "max_tokens" : "end_turn";
}

Json usage_of_messages(const json& usage) {
  const std::int64_t all = usage.value("prompt_tokens", std::int64_t{0});
  const std::int64_t cached = usage.contains("prompt_tokens_details")
                                  ? usage["prompt_tokens_details"].value("cached_tokens", std::int64_t{0})
                                  : 0;
  return {{"input_tokens", all - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", usage.value("completion_tokens", std::int64_t{0})}};
}

bool has_text(const json& message) {
  return message["content"].is_string() && !message["content"].get_ref<const std::string&>().empty();
}

/// "chatcmpl-1f" as "msg_1f".
std::string own_id(const json& completion, const char* kind) {
  const std::string id = completion.value("id", "");
  return fmt::format("{}_{}", kind, id.substr(id.find('-') + 1));
}

class MessagesDialect final : public Dialect {
 public:
  std::string whole(int status, const std::string& chat) override {
    const JsonDocument document = read_json(chat);
    const json& read = *document;
    if (status >= 400)
      return json_text(
          Json{{"type", "error"}, {"error", {{"type", error_type(status)}, {"message", read["error"]["message"]}}}});
    const json& choice = read["choices"][0];
    const json& message = choice["message"];
    Json content = Json::array();
    if (message.contains("reasoning_content"))
      content.push_back({{"type", "thinking"}, {"thinking", message["reasoning_content"]}, {"signature", ""}});
    if (has_text(message)) content.push_back({{"type", "text"}, {"text", message["content"]}});
    for (const json& call : message.value("tool_calls", json::array()))
      content.push_back({{"type", "tool_use"},
                         {"id", call["id"]},
                         {"name", call["function"]["name"]},
                         {"input", Json::parse(call["function"]["arguments"].get<std::string>())}});
    Json made = head(read);
    made["content"] = std::move(content);
    made["stop_reason"] = stop_reason_of(choice["finish_reason"]);
    made["usage"] = usage_of_messages(read["usage"]);
    return json_text(made);
  }

  std::vector<StreamEvent> chunk(const std::string& chat) override {
    std::vector<StreamEvent> out;
    const JsonDocument document = read_json(chat);
    const json& read = *document;
    if (read.contains("error")) {
      add(out, "error", {{"error", {{"type", "api_error"}, {"message", read["error"]["message"]}}}});
      return out;
    }
    if (!begun_) {
      begun_ = true;
      Json message = head(read);
      message["content"] = Json::array();
      message["stop_reason"] = nullptr;
      message["usage"] = usage_of_messages(json::object());
      add(out, "message_start", {{"message", std::move(message)}});
    }
    if (read.contains("usage") && !read["usage"].is_null()) usage_ = usage_of_messages(read["usage"]);
    for (const json& choice : read.value("choices", json::array())) {
      const json delta = choice.value("delta", json::object());
      if (delta.contains("reasoning_content"))
        say(out, "thinking", {{"type", "thinking_delta"}, {"thinking", delta["reasoning_content"]}});
      if (const std::string text = delta.value("content", ""); !text.empty())
        say(out, "text", {{"type", "text_delta"}, {"text", text}});
      for (const json& call : delta.value("tool_calls", json::array())) add_call(out, call);
      if (choice.contains("finish_reason") && choice["finish_reason"].is_string())
        reason_ = stop_reason_of(choice["finish_reason"]);
    }
    return out;
  }

  std::vector<StreamEvent> end() override {
    std::vector<StreamEvent> out;
    close(out);
    add(out, "message_delta", {{"delta", {{"stop_reason", reason_}, {"stop_sequence", nullptr}}}, {"usage", usage_}});
    add(out, "message_stop", Json::object());
    return out;
  }

 private:
  static const char* error_type(int status) {
    if (status == 401) return "authentication_error";
    if (status == 403) return "permission_error";
    if (status == 404) return "not_found_error";
    if (status == 413) return "request_too_large";
    if (status == 429) return "rate_limit_error";
    return status == 503 ? "overloaded_error" : status >= 500 ? "api_error" : "invalid_request_error";
  }

  static Json head(const json& read) {
    return {{"id", own_id(read, "msg")},
            {"type", "message"},
            {"role", "assistant"},
            {"model", read["model"]},
            {"stop_sequence", nullptr}};
  }

  static void add(std::vector<StreamEvent>& out, const char* name, Json more) {
    Json event = {{"type", name}};
    event.update(more);
    out.push_back({name, json_text(event)});
  }

  void open(std::vector<StreamEvent>& out, const std::string& kind, Json block) {
    close(out);
    kind_ = kind;
    add(out, "content_block_start", {{"index", blocks_}, {"content_block", std::move(block)}});
  }

  void say(std::vector<StreamEvent>& out, const std::string& kind, Json delta) {
    if (kind_ != kind) {
      Json block = {{"type", kind}, {kind, ""}};
      if (kind == "thinking") block["signature"] = "";
      open(out, kind, std::move(block));
    }
    add(out, "content_block_delta", {{"index", blocks_}, {"delta", std::move(delta)}});
  }

  void add_call(std::vector<StreamEvent>& out, const json& call) {
    open(out, "tool_use",
         {{"type", "tool_use"}, {"id", call["id"]}, {"name", call["function"]["name"]}, {"input", Json::object()}});
    add(out, "content_block_delta",
        {{"index", blocks_},
         {"delta", {{"type", "input_json_delta"}, {"partial_json", call["function"]["arguments"]}}}});
    close(out);
  }

  void close(std::vector<StreamEvent>& out) {
    if (kind_.empty()) return;
    add(out, "content_block_stop", {{"index", blocks_++}});
    kind_.clear();
  }

  bool begun_ = false;
  int blocks_ = 0;
  std::string kind_;  // type of the open block
  std::string reason_ = "end_turn";
  Json usage_ = Json::object();
};

// OpenAI's Responses.

void add_item(json& messages, const json& item, const std::string& param) {
  const std::string type = member_of(item, "type") != nullptr ? text_at(item, "type", param) : "message";
  if (type == "reasoning") return;
  if (type == "function_call") {
    const json call =
        call_of(text_at(item, "call_id", param), text_at(item, "name", param), text_at(item, "arguments", param));
    const bool joins = !messages.empty() && messages.back()["role"] == "assistant";
    if (joins) return messages.back()["tool_calls"].push_back(call);
    return messages.push_back({{"role", "assistant"}, {"tool_calls", json::array({call})}});
  }
  if (type == "function_call_output") {
    const json* output = member_of(item, "output");
    if (output == nullptr) throw wrong_value(param + ".output", "a text", json());
    return messages.push_back({{"role", "tool"},
                               {"tool_call_id", text_at(item, "call_id", param)},
                               {"content", content_text(*output, param + ".output")}});
  }
  if (type != "message")
    throw wrong_value(param + ".type", "message, function_call, function_call_output or reasoning", type);
  const json* content = member_of(item, "content");
  if (content == nullptr) throw wrong_value(param + ".content", "a text or a list of parts", json());
  messages.push_back({{"role", text_at(item, "role", param)}, {"content", content_text(*content, param + ".content")}});
}

json input_of(const json& body) {
  json messages = json::array();
  if (const json* said = member_of(body, "instructions"))
    messages.push_back({{"role", "system"}, {"content", content_text(*said, "instructions")}});
  const json* input = member_of(body, "input");
  if (input == nullptr) throw ApiError(400, "missing_value", "input: expected a text or a list of items", "input");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  if (!input->is_array() || input->empty()) throw wrong_value("input", "a text or a list of items", *input);
  for (std::size_t i = 0; i < input->size(); ++i) add_item(messages, (*input)[i], fmt::format("input[{}]", i));
  return messages;
}

Json usage_of_response(const json& usage) {
  const json details = usage.value("prompt_tokens_details", json::object());
  const json written = usage.value("completion_tokens_details", json::object());
  return {{"input_tokens", usage.value("prompt_tokens", 0)},
          {"input_tokens_details", {{"cached_tokens", details.value("cached_tokens", 0)}}},
          {"output_tokens", usage.value("completion_tokens", 0)},
          {"output_tokens_details", {{"reasoning_tokens", written.value("reasoning_tokens", 0)}}},
          {"total_tokens", usage.value("total_tokens", 0)}};
}

class ResponsesDialect final : public Dialect {
 public:
  explicit ResponsesDialect(json asked) : asked_(std::move(asked)) {}

  std::string whole(int status, const std::string& chat) override {
    if (status >= 400) return chat;
    const JsonDocument document = read_json(chat);
    const json& read = *document;
    const json& message = read["choices"][0]["message"];
    if (message.contains("reasoning_content")) output_.push_back(reasoning(message["reasoning_content"]));
    for (const json& call : message.value("tool_calls", json::array())) output_.push_back(call_item(call));
    if (has_text(message) || output_.empty())
      output_.push_back(message_item(has_text(message) ? message["content"].get<std::string>() : "", "completed"));
    reason_ = read["choices"][0]["finish_reason"];
    usage_ = usage_of_response(read["usage"]);
    created_ = read["created"];
    id_ = own_id(read, "resp");
    model_ = read["model"];
    return json_text(response(true));
  }

  std::vector<StreamEvent> chunk(const std::string& chat) override {
    std::vector<StreamEvent> out;
    const JsonDocument document = read_json(chat);
    const json& read = *document;
    if (read.contains("error")) {
      add(out, "error", {{"code", read["error"]["code"]}, {"message", read["error"]["message"]}, {"param", nullptr}});
      return out;
    }
    if (id_.empty()) {
      created_ = read["created"];
      id_ = own_id(read, "resp");
      model_ = read["model"];
      add(out, "response.created", {{"response", response(false)}});
      add(out, "response.in_progress", {{"response", response(false)}});
    }
    if (read.contains("usage") && !read["usage"].is_null()) usage_ = usage_of_response(read["usage"]);
    for (const json& choice : read.value("choices", json::array())) {
      const json delta = choice.value("delta", json::object());
      if (delta.contains("reasoning_content")) thought_ += delta["reasoning_content"].get<std::string>();
      if (const std::string text = delta.value("content", ""); !text.empty()) say(out, text);
      for (const json& call : delta.value("tool_calls", json::array())) add_call(out, call);
      if (choice.contains("finish_reason") && choice["finish_reason"].is_string()) reason_ = choice["finish_reason"];
    }
    return out;
  }

  std::vector<StreamEvent> end() override {
    std::vector<StreamEvent> out;
    add_reasoning(out);
    if (output_.empty() && !open_) begin_text(out);
    end_text(out);
    add(out, reason_ == "length" ? "response.incomplete" : "response.completed", {{"response", response(true)}});
    return out;
  }

 private:
  void add(std::vector<StreamEvent>& out, const char* name, Json more) {
    Json event = {{"type", name}, {"sequence_number", sequence_++}};
    event.update(more);
    out.push_back({name, json_text(event)});
  }

  Json response(bool over) const {
    Json made = {{"id", id_}, {"object", "response"}, {"created_at", created_}};
    made["status"] = !over ? "in_progress" : reason_ == "length" ? "incomplete" : "completed";
    made["error"] = nullptr;
    made["incomplete_details"] = over && reason_ == "length" ? Json{{"reason", "max_output_tokens"}} : Json(nullptr);
    made["model"] = model_;
    made["output"] = output_;
    made["usage"] = over ? usage_ : Json(nullptr);
    const std::pair<const char*, json> defaults[] = {
        {"instructions", nullptr}, {"metadata", json::object()},  {"parallel_tool_calls", true},
        {"temperature", nullptr},  {"tool_choice", "auto"},       {"tools", json::array()},
        {"top_p", nullptr},        {"max_output_tokens", nullptr}};
    for (const auto& [name, value] : defaults) {
      const json* given = member_of(asked_, name);
      made[name] = Json::parse(json_text(given != nullptr ? *given : value));
    }
    return made;
  }

  std::string item_id(const char* kind) const {
    return fmt::format("{}_{}_{}", kind, id_.substr(id_.find('_') + 1), output_.size());
  }

  Json reasoning(const std::string& text) const {
    return {{"id", item_id("rs")},
            {"type", "reasoning"},
            {"summary", Json::array()},
            {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
  }
  static Json part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }
  Json message_item(const std::string& text, const char* status) const {
    return {{"id", item_id("msg")},
            {"type", "message"},
            {"role", "assistant"},
            {"status", status},
            {"content", std::string_view(status) == "completed" ? Json::array({part(text)}) : Json::array()}};
  }
  Json call_item(const json& call) const {
    return {{"id", item_id("fc")},
            {"type", "function_call"},
            {"call_id", call["id"]},
            {"name", call["function"]["name"]},
            {"arguments", call["function"]["arguments"]},
            {"status", "completed"}};
  }

  /// Thinking is an item of its own, whole: before the text.
  void add_reasoning(std::vector<StreamEvent>& out) {
    if (thought_.empty()) return;
    const Json item = reasoning(std::exchange(thought_, {}));
    add(out, "response.output_item.added", {{"output_index", output_.size()}, {"item", item}});
    add(out, "response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
  }

  void begin_text(std::vector<StreamEvent>& out) {
    open_ = true;
    const Json item = message_item("", "in_progress");
    add(out, "response.output_item.added", {{"output_index", output_.size()}, {"item", item}});
    Json at = place(item);
    at["part"] = part("");
    add(out, "response.content_part.added", std::move(at));
  }

  Json place(const Json& item) const {
    return {{"item_id", item["id"]}, {"output_index", output_.size()}, {"content_index", 0}};
  }

  void say(std::vector<StreamEvent>& out, const std::string& text) {
    add_reasoning(out);
    if (!open_) begin_text(out);
    text_ += text;
    Json at = place(message_item("", "in_progress"));
    at["delta"] = text;
    at["logprobs"] = Json::array();
    add(out, "response.output_text.delta", std::move(at));
  }

  void end_text(std::vector<StreamEvent>& out) {
    if (!open_) return;
    open_ = false;
    const Json item = message_item(text_, "completed");
    Json at = place(item);
    at["text"] = text_;
    at["logprobs"] = Json::array();
    add(out, "response.output_text.done", at);
    at.erase("text");
    at.erase("logprobs");
    at["part"] = part(text_);
    add(out, "response.content_part.done", std::move(at));
    add(out, "response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
  }

  void add_call(std::vector<StreamEvent>& out, const json& call) {
    add_reasoning(out);
    end_text(out);
    const Json item = call_item(call);
    Json begun = item;
    begun["arguments"] = "";
    begun["status"] = "in_progress";
    add(out, "response.output_item.added", {{"output_index", output_.size()}, {"item", std::move(begun)}});
    const Json at = {{"item_id", item["id"]}, {"output_index", output_.size()}};
    Json delta = at, done = at;
    delta["delta"] = item["arguments"];
    done["arguments"] = item["arguments"];
    done["name"] = item["name"];
    add(out, "response.function_call_arguments.delta", std::move(delta));
    add(out, "response.function_call_arguments.done", std::move(done));
    add(out, "response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
  }

  const json asked_;
  json created_ = 0;
  std::string id_, model_, reason_ = "stop", thought_, text_;
  Json output_ = Json::array(), usage_ = nullptr;
  bool open_ = false;  // the item of the text
  int sequence_ = 0;
};

}  // namespace

namespace {

/// The chat as text, in which schemas have their keys in the order of the body.
std::string with_order(const json& chat, std::string_view body, const char* parameters) {
  const Json ordered = Json::parse(body);
  Json out = Json::parse(json_text(chat));
  for (std::size_t i = 0; out.contains("tools") && i < out["tools"].size(); ++i) {
    Json& function = out["tools"][i]["function"];
    if (function.contains("parameters")) function["parameters"] = ordered["tools"][i][parameters];
  }
  if (out.contains("response_format") && out["response_format"].contains("json_schema") && ordered.contains("text"))
    out["response_format"]["json_schema"]["schema"] = ordered["text"]["format"].value("schema", Json());
  return json_text(out);
}

}  // namespace

std::shared_ptr<Dialect> messages_dialect() { return std::make_shared<MessagesDialect>(); }

TranslatedRequest read_messages_request(std::string_view text) {
  const JsonDocument document = read_body(text);
  const json& body = *document;
  json chat = json::object();
  RequestFields fields(body, chat);
  for (const char* name : {"model", "max_tokens", "temperature", "top_p", "top_k", "stream"}) fields.copy(name);
  fields.copy("stop_sequences", "stop");
  fields.skip({"messages", "system", "tools", "tool_choice", "thinking", "metadata", "service_tier", "betas"});
  fields.end();
  if (!chat.contains("max_tokens"))
    throw ApiError(400, "missing_value", "max_tokens: expected an integer", "max_tokens");
  json messages = json::array();
  if (const json* system = member_of(body, "system"))
    messages.push_back({{"role", "system"}, {"content", content_text(*system, "system")}});
  const json* given = member_of(body, "messages");
  if (given == nullptr || !given->is_array() || given->empty())
    throw wrong_value("messages", "a list of at least one message", given == nullptr ? json() : *given);
  for (std::size_t i = 0; i < given->size(); ++i) add_blocks(messages, (*given)[i], fmt::format("messages[{}]", i));
  chat["messages"] = std::move(messages);
  if (const json* tools = member_of(body, "tools")) {
    if (!tools->is_array()) throw wrong_value("tools", "a list of tools", *tools);
    for (const json& tool : *tools) {
      if (const json* type = member_of(tool, "type"); type != nullptr && *type != "custom")
        throw wrong_value("tools", "tools of type custom", tool);
      chat["tools"].push_back(function_tool(text_at(tool, "name", "tools"), member_of(tool, "description"),
                                            member_of(tool, "input_schema")));
    }
  }
  read_choice(body, chat);
  read_thinking(body, chat);
  if (chat.value("stream", json(false)) == true) chat["stream_options"] = {{"include_usage", true}};
  return {with_order(chat, text, "input_schema"), messages_dialect()};
}

TranslatedRequest read_response_request(std::string_view text) {
  const JsonDocument document = read_body(text);
  const json& body = *document;
  json chat = json::object();
  RequestFields fields(body, chat);
  for (const char* name : {"model", "temperature", "top_p", "stream", "parallel_tool_calls", "user", "metadata"})
    fields.copy(name);
  fields.copy("max_output_tokens", "max_tokens");
  fields.skip({"input", "instructions", "tools", "tool_choice", "text", "reasoning", "store", "include", "truncation",
               "service_tier", "safety_identifier", "prompt_cache_key", "stream_options"});
  fields.end();
  chat["messages"] = input_of(body);
  if (const json* tools = member_of(body, "tools")) {
    if (!tools->is_array()) throw wrong_value("tools", "a list of tools", *tools);
    for (const json& tool : *tools) {
      if (text_at(tool, "type", "tools") != "function") throw wrong_value("tools", "tools of type function", tool);
      chat["tools"].push_back(
          function_tool(text_at(tool, "name", "tools"), member_of(tool, "description"), member_of(tool, "parameters")));
    }
  }
  if (const json* choice = member_of(body, "tool_choice")) {
    chat["tool_choice"] = *choice;
    if (choice->is_object())
      chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", text_at(*choice, "name", "tool_choice")}}}};
  }
  if (const json* form = member_of(body, "text"); form != nullptr && member_of(*form, "format") != nullptr) {
    json format = (*form)["format"];
    if (format.is_object() && format.value("type", json()) == "json_schema")
      format = {{"type", "json_schema"},
                {"json_schema", {{"name", "answer"}, {"schema", format.value("schema", json())}}}};
    chat["response_format"] = std::move(format);
  }
  if (const json* reasoning = member_of(body, "reasoning");
      reasoning != nullptr && member_of(*reasoning, "effort") != nullptr)
    chat["reasoning_effort"] = (*reasoning)["effort"];
  if (chat.value("stream", json(false)) == true) chat["stream_options"] = {{"include_usage", true}};
  return {with_order(chat, text, "parameters"), std::make_shared<ResponsesDialect>(body)};
}

}  // namespace baton::serve
