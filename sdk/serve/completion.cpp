// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/completion.h"

#include <fmt/format.h>

#include <random>

#include "engine/base/json/json_text.h"
#include "sdk/serve/metrics.h"

namespace baton::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string new_id(bool chat) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}{:08x}", chat ? "chatcmpl" : "cmpl", random(), random(), random());
}

/// "length" where the answer was cut off, that of the last agent that wrote.
const char* finish_reason(const RunRecord& record) {
  for (auto agent = record.agents.rbegin(); agent != record.agents.rend(); ++agent) {
    if (agent->state == TurnState::ok) return agent->truncated ? "length" : "stop";
  }
  return "stop";
}

OrderedJson usage_of(const RunRecord& record) {
  const TokenCounts tokens = tokens_of(record);
  return {{"prompt_tokens", tokens.prompt},
          {"completion_tokens", tokens.completion},
          {"total_tokens", tokens.prompt + tokens.completion},
          {"prompt_tokens_details", {{"cached_tokens", tokens.relayed}}}};
}

OrderedJson extension_of(const ChatRequest& request, const RunRecord& record) {
  return {{"ahead_tokens", tokens_of(record).ahead}, {"unread_messages", request.unread_messages}};
}

OrderedJson reply(const ChatRequest& request, const std::string& id, long long created, bool chunk) {
  const char* object = !request.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id}, {"object", object}, {"created", created}, {"model", request.workflow->name}};
}

OrderedJson choice(const char* name, OrderedJson text, OrderedJson reason) {
  OrderedJson one = {{"index", 0}};
  one[name] = std::move(text);
  one["logprobs"] = nullptr;
  one["finish_reason"] = std::move(reason);
  return OrderedJson::array({std::move(one)});
}

}  // namespace

std::string answer_of(const RunRecord& record) {
  if (record.outputs.size() == 1) return record.outputs.begin()->second;
  std::string text;
  for (const auto& [name, output] : record.outputs)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", name, output);
  return text;
}

Completion::Completion(const ChatRequest& request, long long created)
    : request_(request), id_(new_id(request.chat)), created_(created) {}

std::string Completion::whole(const RunRecord& record) const {
  OrderedJson json = reply(request_, id_, created_, false);
  const std::string text = answer_of(record);
  json["choices"] = request_.chat ? choice("message", {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}},
                                           finish_reason(record))
                                  : choice("text", text, finish_reason(record));
  json["usage"] = usage_of(record);
  json["baton"] = extension_of(request_, record);
  return json_text(json);
}

std::string Completion::first() const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] =
      request_.chat ? choice("delta", {{"role", "assistant"}, {"content", ""}}, nullptr) : choice("text", "", nullptr);
  return json_text(json);
}

std::string Completion::text(std::string_view text) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = request_.chat ? choice("delta", {{"content", text}}, nullptr) : choice("text", text, nullptr);
  return json_text(json);
}

std::string Completion::last(const RunRecord& record) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = request_.chat ? choice("delta", OrderedJson::object(), finish_reason(record))
                                  : choice("text", "", finish_reason(record));
  return json_text(json);
}

std::string Completion::usage(const RunRecord& record) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = OrderedJson::array();
  json["usage"] = usage_of(record);
  json["baton"] = extension_of(request_, record);
  return json_text(json);
}

std::string Completion::event(const Event& event, double t_ms) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = OrderedJson::array();
  std::string text = json_text(json);
  text.pop_back();  // the object's end
  if (const auto* finished = std::get_if<RunFinished>(&event)) {
    RunFinished without_path = *finished;
    without_path.record.model_path.clear();
    return text + ",\"baton\":" + to_json(without_path, t_ms) + "}";
  }
  return text + ",\"baton\":" + to_json(event, t_ms) + "}";
}

}  // namespace baton::serve
