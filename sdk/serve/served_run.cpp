// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/served_run.h"

#include <fmt/format.h>

#include <optional>
#include <random>
#include <string_view>

#include <baton/errors.h>
#include <baton/run.h>

#include "engine/base/json/json_reader.h"
#include "sdk/serve/chat_request.h"
#include "sdk/serve/metrics.h"

namespace baton::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string new_id(bool chat) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}{:08x}", chat ? "chatcmpl" : "cmpl", random(), random(), random());
}

/// Returns "length" if the answer of the last agent that wrote was cut off.
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
          {"prompt_tokens_details", {{"cached_tokens", tokens.relayed}}},
          {"completion_tokens_details", {{"reasoning_tokens", tokens.thinking}}}};
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

namespace {

/// What the model thought before the answer; empty if the answer is not one agent's.
std::string thinking_of(const ChatRequest& request, const RunRecord& record) {
  if (request.workflow->answer < 0) return {};
  const auto turn = request.workflow->workflow.turns()[static_cast<std::size_t>(request.workflow->answer)];
  for (const AgentRecord& agent : record.agents) {
    if (agent.agent == turn.agent && agent.round == turn.round) return agent.thinking;
  }
  return {};
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
  OrderedJson message = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  if (const std::string thought = thinking_of(request_, record); !thought.empty())
    message["reasoning_content"] = thought;
  json["choices"] = request_.chat ? choice("message", std::move(message), finish_reason(record))
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

std::string Completion::thinking(std::string_view text) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = choice("delta", {{"reasoning_content", text}}, nullptr);
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

namespace {

using Clock = std::chrono::steady_clock;

/// Why a run that has ended has no answer; nothing: it has one.
std::optional<ApiError> error_of(const RunRecord& record, const std::function<void(const std::string&)>& log) {
  switch (record.state) {
    case RunState::ok:
      return std::nullopt;
    case RunState::timeout:
      return ApiError(504, "timeout", record.error);
    case RunState::cancelled:
      return ApiError(503, "cancelled", "the server ended the run, since it shuts down");
    case RunState::suspended:
      return ApiError(409, "suspended",
                      record.error + ": a step asks, or a call has to be approved, and a served run has nobody to ask");
    case RunState::failed:
      break;
  }
  if (record.error_kind == ErrorKind::agent) return ApiError(500, "run_failed", record.error);
  log(record.error);  // may name files
  if (record.error_kind == ErrorKind::resources)
    return ApiError(503, "no_resources", "the server lacks what the run needs: memory, a model or a device");
  return ApiError(500, "run_failed", "the run failed; the server's log says why");
}

/// The exception that is being handled, as the client may know it.
ApiError current_error(const std::function<void(const std::string&)>& log) {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const InputError& error) {
    return {400, error.missing.empty() ? "invalid_value" : "missing_value", error.what(), "baton.inputs"};
  } catch (const ResourceError& error) {
    log(error.what());
    return {503, "no_resources", "the server lacks what the run needs: memory, a model or a device"};
  } catch (const std::exception& error) {
    log(error.what());
    return {500, "internal_error", "the run failed; the server's log says why"};
  }
}

class ServedRun {
 public:
  ServedRun(const ChatRequest& request, const RunSettings& settings, Metrics& metrics, const ReplySink& sink)
      : request_(request),
        settings_(settings),
        metrics_(metrics),
        sink_(sink),
        completion_(request, std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())) {
    if (request.workflow->answer >= 0)
      answering_ = request.workflow->workflow.turns()[static_cast<std::size_t>(request.workflow->answer)];
  }

  void run(const Engine& engine) {
    try {
      RunOptions options;
      options.inputs = request_.inputs;
      options.seed = request_.seed;
      options.timeout = settings_.timeout;
      options.stop = settings_.stop;
      if (settings_.follow_run) options.on_event = settings_.follow_run();
      const Run run = engine.start(request_.workflow->workflow, options);
      begin_ = Clock::now();
      for (const Event& event : run.events()) follow(event);
      finish(run.get());
    } catch (...) {
      fail(current_error(settings_.on_log));
    }
  }

 private:
  void follow(const Event& event) {
    if (request_.stream && !streams_) {  // not before, so that what is refused at once has a status of its own
      streams_ = true;
      sink_.begin();
      sink_.data(completion_.first());
    }
    const std::chrono::duration<double, std::milli> since = Clock::now() - begin_;
    if (request_.events) sink_.data(completion_.event(event, since.count()));
    const auto* thought = std::get_if<ThinkingToken>(&event);
    const Token* token = thought != nullptr ? thought : std::get_if<Token>(&event);
    if (token == nullptr || !answering_ || token->agent != answering_->agent || token->round != answering_->round)
      return;
    if (thought == nullptr) return say(token->text);
    if (request_.stream && request_.chat && !token->text.empty()) sink_.data(completion_.thinking(token->text));
  }

  void say(std::string_view text) {
    if (text.empty()) return;
    count_first_token();
    if (!request_.stream) return;
    said_ += text;
    sink_.data(completion_.text(text));
  }

  void finish(const RunRecord& record) {
    metrics_.count_tokens(request_.workflow->name, tokens_of(record));
    if (const std::optional<ApiError> error = error_of(record, settings_.on_log)) return fail(*error);
    count_first_token();
    if (!request_.stream) return sink_.reply(200, completion_.whole(record));
    const std::string all = answer_of(record);
    if (!all.starts_with(said_)) throw std::logic_error("the answer is not what was streamed of it");
    say(std::string_view(all).substr(said_.size()));
    sink_.data(completion_.last(record));
    if (request_.include_usage) sink_.data(completion_.usage(record));
    sink_.end(200);
  }

  void fail(const ApiError& error) {
    if (!streams_) return sink_.reply(error.status, error_json(error));
    sink_.data(error_json(error));
    sink_.end(error.status);
  }

  void count_first_token() {
    if (counted_) return;
    counted_ = true;
    const std::chrono::duration<double> since = Clock::now() - settings_.arrived;
    metrics_.count_first_token(request_.workflow->name, since.count());
  }

  const ChatRequest& request_;
  const RunSettings& settings_;
  Metrics& metrics_;
  const ReplySink& sink_;
  Completion completion_;
  std::optional<TurnInfo> answering_;
  Clock::time_point begin_;
  std::string said_;
  bool streams_ = false;
  bool counted_ = false;
};

}  // namespace

void answer(const Engine& engine, const ChatRequest& request, const RunSettings& settings, Metrics& metrics,
            const ReplySink& sink) {
  ServedRun(request, settings, metrics, sink).run(engine);
}

}  // namespace baton::serve
