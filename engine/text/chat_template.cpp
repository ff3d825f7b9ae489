// SPDX-License-Identifier: Apache-2.0
#include "engine/text/chat_template.h"

#include <fmt/format.h>

#include "engine/base/errors.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/jinja/json_value.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/renderer.h"

namespace baton {
namespace {

// Official templates have up to 20 KB.
constexpr std::size_t kMaxTemplateBytes = 1u << 20;

using jinja::Value;

/// An object of JSON, its members in the order of the text.
Value object_of(const std::string& json, jinja::Budget& budget) {
  read_json(json);  // what is read below is within the limits
  const auto object = nlohmann::ordered_json::parse(json);
  if (!object.is_object()) throw ModelError("a tool, or the arguments of a call, is not a JSON object");
  return jinja::value_of_json(object, budget);
}

/// The form that Transformers passes to templates, for tools and for calls.
Value function_of(Value function, const std::string* id, jinja::Budget& budget) {
  jinja::Dict dict;
  dict.set("type", "function", budget);
  if (id != nullptr) dict.set("id", utf8::repaired(*id), budget);
  dict.set("function", std::move(function), budget);
  return Value::dict(std::move(dict));
}

Value message_of(const ChatMessage& message, jinja::Budget& budget) {
  jinja::Dict dict;
  dict.set("role", utf8::repaired(message.role), budget);
  dict.set("content", utf8::repaired(message.content), budget);
  if (!message.name.empty()) dict.set("name", utf8::repaired(message.name), budget);
  if (!message.call_id.empty()) dict.set("tool_call_id", utf8::repaired(message.call_id), budget);
  jinja::Values calls;
  for (const ChatCall& call : message.calls) {
    jinja::Dict function;
    function.set("name", utf8::repaired(call.name), budget);
    function.set("arguments", object_of(call.arguments, budget), budget);
    calls.push_back(function_of(Value::dict(std::move(function)), &call.id, budget));
  }
  if (!calls.empty()) dict.set("tool_calls", Value::sequence(jinja::SequenceKind::list, std::move(calls)), budget);
  return Value::dict(std::move(dict));
}

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(std::string_view source, std::string origin)
      : origin_(std::move(origin)), block_(jinja::parse_template(source, origin_)) {}

  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const std::stop_token& stop) const override {
    jinja::Budget budget(stop);
    jinja::Values list, tools;
    try {
      for (const ChatMessage& message : messages) list.push_back(message_of(message, budget));
      for (const std::string& tool : options.tools)
        tools.push_back(function_of(object_of(tool, budget), nullptr, budget));
    } catch (const jinja::Fault& fault) {
      throw ModelError(fmt::format("{}: {}", origin_, fault.what()));
    } catch (const JsonError& error) {
      throw ModelError(fmt::format("{}: a tool, or the arguments of a call: {}", origin_, error.what()));
    }
    // The variables that Transformers passes; tokens that a model does not have are undefined.
    std::vector<std::pair<std::string, Value>> variables = {
        {"messages", Value::sequence(jinja::SequenceKind::list, std::move(list))},
        {"tools", tools.empty() ? Value() : Value::sequence(jinja::SequenceKind::list, std::move(tools))},
        {"documents", Value()},
        {"add_generation_prompt", Value(options.add_generation_prompt)},
    };
    if (!options.bos_token.empty()) variables.emplace_back("bos_token", utf8::repaired(options.bos_token));
    if (!options.eos_token.empty()) variables.emplace_back("eos_token", utf8::repaired(options.eos_token));
    for (const auto& [name, value] : options.flags) variables.emplace_back(name, Value(value));
    return jinja::Renderer(origin_, stop).render(block_, variables);
  }

 private:
  std::string origin_;
  jinja::Block block_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string& origin) {
  if (source.size() > kMaxTemplateBytes)
    throw ModelError(fmt::format("{}: the chat template has {} bytes, expected at most {}", origin, source.size(),
                                 kMaxTemplateBytes));
  if (!utf8::is_valid(source)) throw ModelError(origin + ": the chat template is not valid UTF-8");
  return std::make_shared<JinjaTemplate>(source, origin);
}

}  // namespace baton
