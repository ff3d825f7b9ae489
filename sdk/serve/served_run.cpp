// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/served_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include <baton/errors.h>
#include <baton/run.h>

#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "sdk/serve/chat_request.h"
#include "sdk/serve/metrics.h"

namespace baton::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string new_id(std::string_view kind) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}{:08x}", kind, random(), random(), random());
}

long long seconds_now() { return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()); }

/// The members of a question that its client and the list have alike.
OrderedJson question_json(const std::string& id, const Asked& asked) {
  return {{"id", id},           {"agent", asked.agent},         {"round", asked.round},      {"turn", asked.turn},
          {"tool", asked.tool}, {"arguments", asked.arguments}, {"question", asked.question}};
}

/// A person's answer as RunOptions::on_ask gives it. Throws ApiError.
std::string read_approval(std::string_view body) {
  const auto wrong = [](const char* param, const std::string& message) {
    return ApiError(400, "invalid_value", message, param);
  };
  JsonDocument document;
  try {
    document = read_json(body);
  } catch (const JsonError& error) {
    throw ApiError(400, "invalid_json", fmt::format("the body is no JSON: {}", error.what()));
  }
  if (!document->is_object()) throw wrong("", "expected an object with the member decision");
  for (const auto& [name, value] : document->items()) {
    if (name != "decision" && name != "reason" && name != "arguments")
      throw wrong("", fmt::format("unknown member '{}'; expected decision, reason or arguments", beginning(name, 60)));
  }
  const auto member = [&](const char* name) {
    const auto found = document->find(name);
    return found == document->end() || found->is_null() ? nullptr : &*found;
  };
  const auto* decision = member("decision");
  const auto* reason = member("reason");
  const auto* arguments = member("arguments");
  if (decision == nullptr) throw ApiError(400, "missing_value", "decision: expected allow or deny", "decision");
  const bool allows = *decision == "allow";
  if (!allows && *decision != "deny") throw wrong("decision", "decision: expected allow or deny");
  constexpr std::size_t kMaxReason = 1000;  // bytes; more is not told to the model
  if (reason != nullptr && reason->is_string() && reason->get_ref<const std::string&>().size() > kMaxReason)
    throw wrong("reason", fmt::format("reason: expected at most {} bytes", kMaxReason));
  if (reason != nullptr && (allows || !reason->is_string()))
    throw wrong("reason", allows ? "reason: expected only with decision deny" : "reason: expected a text");
  if (arguments != nullptr && (!allows || !arguments->is_object()))
    throw wrong("arguments", allows ? "arguments: expected an object" : "arguments: expected only with decision allow");
  if (arguments != nullptr) return json_text(*arguments);
  if (allows) return "allow";
  return reason == nullptr ? "deny" : "deny: " + reason->get<std::string>();
}

constexpr std::size_t kMaxOver = 1024;  // questions that are not open any more and are remembered

/// The calls of the client's tools that are the answer.
std::vector<const ToolUse*> calls_of(const ChatRequest& request, const RunRecord& record) {
  std::vector<const ToolUse*> calls;
  if (!request.calls || record.agents.empty()) return calls;
  const std::vector<ToolUse>& uses = record.agents.back().tools;
  for (const ToolUse& use : uses)
    if (use.ok && use.generation == uses.back().generation) calls.push_back(&use);
  return calls;
}

/// "tool_calls" for calls of the client's tools, else "length" if the last output of an agent that the answer shows was
/// cut off.
const char* finish_reason(const ChatRequest& request, const RunRecord& record) {
  if (!calls_of(request, record).empty()) return "tool_calls";
  std::map<std::string_view, bool> cut_off;  // by agent
  for (const AgentRecord& agent : record.agents) {
    if (agent.state == TurnState::ok && request.workflow->shown.contains(agent.agent))
      cut_off[agent.agent] = agent.truncated;
  }
  const bool any = std::any_of(cut_off.begin(), cut_off.end(), [](const auto& one) { return one.second; });
  return any ? "length" : "stop";
}

/// Of several answers to one prompt: the prompt counts once.
TokenCounts tokens_of(const std::vector<RunRecord>& records) {
  TokenCounts all = baton::serve::tokens_of(records.front());
  for (std::size_t i = 1; i < records.size(); ++i) {
    const TokenCounts one = baton::serve::tokens_of(records[i]);
    all.completion += one.completion;
    all.thinking += one.thinking;
  }
  return all;
}

OrderedJson usage_of(const std::vector<RunRecord>& records) {
  const TokenCounts tokens = tokens_of(records);
  return {{"prompt_tokens", tokens.prompt},
          {"completion_tokens", tokens.completion},
          {"total_tokens", tokens.prompt + tokens.completion},
          {"prompt_tokens_details", {{"cached_tokens", tokens.relayed}}},
          {"completion_tokens_details", {{"reasoning_tokens", tokens.thinking}}}};
}

/// True for warnings whose messages may name servers, programs and paths of the host, which are not a client's.
bool is_private(WarningCode code) {
  return code == WarningCode::server_missing || code == WarningCode::tools_left_out ||
         code == WarningCode::attempt_failed || code == WarningCode::turn_failed || code == WarningCode::other;
}

OrderedJson extension_of(const ChatRequest& request, const std::vector<RunRecord>& records) {
  OrderedJson warnings = OrderedJson::array();
  for (const RunRecord& record : records) {
    for (const WarningRecord& one : record.warnings) {
      OrderedJson warning = {
          {"code", name_of(one.code)}, {"agent", one.agent}, {"turn", one.turn}, {"count", one.count}};
      if (!is_private(one.code)) warning["message"] = one.message;
      warnings.push_back(std::move(warning));
    }
  }
  OrderedJson extension = {{"ahead_tokens", tokens_of(records).ahead},
                           {"unread_messages", request.unread_messages},
                           {"unread_fields", request.unread_fields},
                           {"warnings", std::move(warnings)}};
  if (!request.workflow->model.empty()) extension["seed"] = *request.seed;
  return extension;
}

OrderedJson reply(const ChatRequest& request, const std::string& id, long long created, bool chunk) {
  const char* object = !request.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  OrderedJson json = {{"id", id}, {"object", object}, {"created", created}, {"model", request.workflow->name}};
  if (chunk && request.include_usage) json["usage"] = nullptr;  // until the last chunk
  return json;
}

OrderedJson chance_json(const TokenChance& chance) {
  OrderedJson bytes = OrderedJson::array();
  for (const char byte : chance.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  const double logprob = std::max(chance.logprob, -9999.0);  // JSON has no infinity
  return {{"token", chance.bytes}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

/// null: no log probabilities are wanted.
OrderedJson logprobs_json(const std::vector<Token>& tokens) {
  if (tokens.empty()) return nullptr;
  OrderedJson content = OrderedJson::array();
  for (const Token& token : tokens) {
    OrderedJson one = chance_json(*token.chance);
    one["top_logprobs"] = OrderedJson::array();
    for (const TokenChance& other : token.top) one["top_logprobs"].push_back(chance_json(other));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

OrderedJson choice(int index, const char* name, OrderedJson text, OrderedJson reason) {
  OrderedJson one = {{"index", index}};
  one[name] = std::move(text);
  one["logprobs"] = nullptr;
  one["finish_reason"] = std::move(reason);
  return one;
}

/// The one choice of a chunk.
OrderedJson choices(int index, const char* name, OrderedJson text, OrderedJson reason) {
  return OrderedJson::array({choice(index, name, std::move(text), std::move(reason))});
}

/// `chunk`: in the form of a stream, whose calls have numbers.
OrderedJson calls_json(const std::vector<const ToolUse*>& calls, const std::string& id, bool chunk) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    OrderedJson one = OrderedJson::object();
    if (chunk) one["index"] = i;
    one["id"] = fmt::format("call_{}_{}", id.substr(id.find('-') + 1), i);
    one["type"] = "function";
    one["function"] = {{"name", calls[i]->tool}, {"arguments", calls[i]->arguments}};
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

namespace {

/// What the model thought before the answer; empty if the answer is not one agent's.
std::string thinking_of(const ChatRequest& request, const RunRecord& record) {
  if (!request.workflow->model.empty()) return record.agents.empty() ? std::string() : record.agents.back().thinking;
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

std::string Approvals::open(const Question& question, Side side) {
  const std::lock_guard lock(mutex_);
  const auto came = [side](Entry& entry) -> bool& { return side == Side::telling ? entry.told : entry.waited; };
  std::pair<const std::string, Entry>* found = nullptr;  // the newest one that the side has not come to
  for (auto& one : entries_) {
    const Question& known = one.second.question;
    if (known.run != question.run || known.asked.turn != question.asked.turn || came(one.second)) continue;
    const bool same = known.asked.tool == question.asked.tool && known.asked.arguments == question.asked.arguments &&
                      known.asked.question == question.asked.question;
    if (same && (found == nullptr || one.second.order > found->second.order)) found = &one;
  }
  if (found != nullptr) {
    came(found->second) = true;
    return found->first;
  }
  for (auto& [id, entry] : entries_) {
    const bool stale = side == Side::telling && entry.state == State::open && !entry.waited &&
                       entry.question.run == question.run && entry.question.asked.turn == question.asked.turn;
    if (stale) end(id, entry, State::closed);
  }
  const std::string id = new_id("appr");
  Entry& entry = entries_[id];
  entry.question = question;
  entry.order = ++opened_;
  entry.created = seconds_now();
  came(entry) = true;
  if (stopped_) end(id, entry, State::closed);
  return id;
}

std::optional<std::string> Approvals::wait(const std::string& id, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto over = [&] {
    const auto found = entries_.find(id);
    return found == entries_.end() || found->second.state != State::open;
  };
  changed_.wait_for(lock, stop, patience_, over);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return std::nullopt;
  if (found->second.state == State::answered) {
    drop_texts(found->second);
    return std::exchange(found->second.answer, {});
  }
  if (found->second.state == State::open) end(id, found->second, State::closed);
  return std::nullopt;
}

void Approvals::drop_texts(Entry& entry) {
  entry.question.asked.question.clear();
  entry.question.asked.arguments.clear();
}

/// The texts of an answered question find it again until its answer is taken.
void Approvals::end(const std::string& id, Entry& entry, State state) {
  over_.push_back(id);  // may throw, so that the state comes behind it
  entry.state = state;
  if (state == State::closed) drop_texts(entry);
  changed_.notify_all();
}

void Approvals::close(const std::string& run) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : entries_) {
    if (entry.question.run == run && entry.state == State::open) end(id, entry, State::closed);
    if (entry.question.run != run) continue;
    drop_texts(entry);
    entry.answer.clear();
    entry.question.run.clear();  // from here on it may be forgotten
  }
  for (std::size_t i = 0; i < over_.size() && over_.size() > kMaxOver;) {
    const auto found = entries_.find(over_[i]);
    if (found != entries_.end() && !found->second.question.run.empty()) {
      ++i;
      continue;
    }
    if (found != entries_.end()) entries_.erase(found);
    over_.erase(over_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Approvals::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (auto& [id, entry] : entries_) {
    if (entry.state != State::open) continue;
    try {
      end(id, entry, State::closed);
    } catch (const std::bad_alloc&) {  // its run is about to end, which closes it, too
    }
  }
}

bool Approvals::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

std::string Approvals::list_json() const {
  const std::lock_guard lock(mutex_);
  std::map<std::uint64_t, OrderedJson> open;
  for (const auto& [id, entry] : entries_) {
    if (entry.state != State::open) continue;
    OrderedJson one = question_json(id, entry.question.asked);
    one["object"] = "approval";
    one["created"] = entry.created;
    one["model"] = entry.question.model;
    one["run"] = entry.question.run;
    open[entry.order] = std::move(one);
  }
  OrderedJson list = OrderedJson::array();
  for (auto& [order, one] : open) list.push_back(std::move(one));
  return json_text(OrderedJson{{"object", "list"}, {"data", std::move(list)}});
}

std::string Approvals::answer(const std::string& id, std::string_view body) {
  std::string answer = read_approval(body);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) throw ApiError(404, "approval_not_found", "unknown question");
  Entry& entry = found->second;
  if (entry.state == State::answered) throw ApiError(409, "approval_answered", "the question has an answer already");
  if (entry.state == State::closed)
    throw ApiError(410, "approval_closed", "nobody waits for the answer any more: the run has ended, or its time has");
  end(id, entry, State::answered);
  entry.answer = std::move(answer);
  return json_text(OrderedJson{{"id", id}, {"object", "approval"}, {"state", "answered"}});
}

Completion::Completion(const ChatRequest& request, long long created)
    : request_(request), id_(new_id(request.chat ? "chatcmpl" : "cmpl")), created_(created) {}

std::string Completion::whole(const std::vector<RunRecord>& records,
                              const std::vector<std::vector<Token>>& tokens) const {
  OrderedJson json = reply(request_, id_, created_, false);
  json["choices"] = OrderedJson::array();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const RunRecord& record = records[i];
    const auto index = static_cast<int>(i);
    const char* reason = finish_reason(request_, record);
    if (!request_.chat) {
      json["choices"].push_back(choice(index, "text", answer_of(record), reason));
      continue;
    }
    const std::vector<const ToolUse*> calls = calls_of(request_, record);
    OrderedJson message = {{"role", "assistant"}, {"content", answer_of(record)}, {"refusal", nullptr}};
    if (const std::string thought = thinking_of(request_, record); !thought.empty())
      message["reasoning_content"] = thought;
    if (!calls.empty()) {
      message["content"] = nullptr;
      message["tool_calls"] = calls_json(calls, fmt::format("{}_{}", id_, index), false);
    }
    json["choices"].push_back(choice(index, "message", std::move(message), reason));
    json["choices"].back()["logprobs"] = logprobs_json(tokens[i]);
  }
  json["usage"] = usage_of(records);
  json["baton"] = extension_of(request_, records);
  return json_text(json);
}

std::string Completion::first(int index) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = request_.chat ? choices(index, "delta", {{"role", "assistant"}, {"content", ""}}, nullptr)
                                  : choices(index, "text", "", nullptr);
  return json_text(json);
}

std::string Completion::text(int index, std::string_view text, const std::vector<Token>& tokens) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] =
      request_.chat ? choices(index, "delta", {{"content", text}}, nullptr) : choices(index, "text", text, nullptr);
  json["choices"][0]["logprobs"] = logprobs_json(tokens);
  return json_text(json);
}

std::string Completion::thinking(int index, std::string_view text) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = choices(index, "delta", {{"reasoning_content", text}}, nullptr);
  return json_text(json);
}

std::optional<std::string> Completion::calls(int index, const RunRecord& record) const {
  const std::vector<const ToolUse*> calls = calls_of(request_, record);
  if (calls.empty()) return std::nullopt;
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] =
      choices(index, "delta", {{"tool_calls", calls_json(calls, fmt::format("{}_{}", id_, index), true)}}, nullptr);
  return json_text(json);
}

std::string Completion::last(int index, const RunRecord& record) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = request_.chat ? choices(index, "delta", OrderedJson::object(), finish_reason(request_, record))
                                  : choices(index, "text", "", finish_reason(request_, record));
  return json_text(json);
}

std::string Completion::usage(const std::vector<RunRecord>& records) const {
  OrderedJson json = reply(request_, id_, created_, true);
  json["choices"] = OrderedJson::array();
  json["usage"] = usage_of(records);
  json["baton"] = extension_of(request_, records);
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
    without_path.record.engines.clear();
    return text + ",\"baton\":" + to_json(without_path, t_ms) + "}";
  }
  return text + ",\"baton\":" + to_json(event, t_ms) + "}";
}

std::string Completion::approval(const std::string& question, const Asked& asked) const {
  OrderedJson json = reply(request_, id_, created_, true), told = {{"type", "approval"}};
  json["choices"] = OrderedJson::array();
  told.update(question_json(question, asked));
  json["baton"] = std::move(told);
  return json_text(json);
}

namespace {

using Clock = std::chrono::steady_clock;

/// Why a run that has ended has no answer; nothing: it has one.
std::optional<ApiError> error_of(const ChatRequest& request, const RunRecord& record, const Approvals& approvals,
                                 const std::function<void(const std::string&)>& log) {
  switch (record.state) {
    case RunState::ok:
      return std::nullopt;
    case RunState::timeout:
      return ApiError(504, "timeout", record.error);
    case RunState::cancelled:
      return ApiError(503, "cancelled", "the server ended the run, since it shuts down");
    case RunState::suspended:
      if (approvals.is_stopped())
        return ApiError(503, "cancelled", record.error + ": the server shuts down, and nobody can give it any more");
      return ApiError(
          409, "suspended",
          record.error + (approvals.asks() ? fmt::format(": none came within {} s",
                                                         std::chrono::duration<double>(approvals.patience()).count())
                                           : std::string(": this server asks nobody")));
    case RunState::failed:
      break;
  }
  if (record.error_kind == ErrorKind::agent) return ApiError(500, "run_failed", record.error);
  if (record.error_kind == ErrorKind::input)
    return ApiError(400, "context_length_exceeded", record.error, request.chat ? "messages" : "prompt");
  log(record.error);  // may name files
  if (record.error_kind == ErrorKind::resources)
    return ApiError(503, "no_resources", "the server lacks what the run needs: memory, a model or a device");
  return ApiError(500, "run_failed", "the run failed; the server's log says why");
}

/// The exception that is being handled, as the client may know it.
ApiError current_error(const ChatRequest& request, const std::function<void(const std::string&)>& log) {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const InputError& error) {
    const char* param = request.workflow->model.empty() ? "baton.inputs" : "messages";
    return {400, error.missing.empty() ? "invalid_value" : "missing_value", error.what(), param};
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
  ServedRun(const ChatRequest& request, const RunSettings& settings, Metrics& metrics, Approvals& approvals,
            const ReplySink& sink)
      : request_(request),
        settings_(settings),
        metrics_(metrics),
        approvals_(approvals),
        sink_(sink),
        completion_(request, seconds_now()) {
    if (request.workflow->answer >= 0)
      answering_ = request.workflow->workflow.turns()[static_cast<std::size_t>(request.workflow->answer)];
  }

  ~ServedRun() {
    try {
      approvals_.close(completion_.id());
    } catch (const std::bad_alloc&) {  // its questions stay listed; nobody can answer them with effect
    }
  }
  ServedRun(const ServedRun&) = delete;
  ServedRun& operator=(const ServedRun&) = delete;

  void run(const Engine& engine) {
    try {
      begin_ = Clock::now();
      for (int index = 0; index < request_.choices; ++index) {
        Choice& choice = choices_.emplace_back();
        choice.run.emplace(engine.start(request_.workflow->workflow, options_of(index)));
      }
      while (follow_all()) {
      }
      std::vector<RunRecord> records;
      for (const Choice& choice : choices_) records.push_back(choice.run->get());
      finish(records);
    } catch (...) {
      fail(current_error(request_, settings_.on_log));
    }
  }

 private:
  struct Choice {
    std::optional<Run> run{};
    std::string said{};
    std::vector<Token> tokens{};  // if their log probabilities are wanted; of a stream, that were not sent yet
    bool over = false;
  };

  RunOptions options_of(int index) {
    RunOptions options;
    options.inputs = request_.inputs;
    options.seed = request_.seed;
    if (options.seed) *options.seed += static_cast<std::uint64_t>(index);
    options.top_logprobs = request_.top_logprobs;
    options.timeout = settings_.timeout;
    options.stop = settings_.stop;
    if (approvals_.asks())
      options.on_ask = [this](const Asked& asked, const std::stop_token& stop) {
        return approvals_.wait(approvals_.open(question(asked), Approvals::Side::waiting), stop);
      };
    if (settings_.follow_run) options.on_event = settings_.follow_run();
    return options;
  }

  int index_of(const Choice& choice) const { return static_cast<int>(&choice - choices_.data()); }

  /// Takes the next event of each run that goes on. Returns false if there is none.
  bool follow_all() {
    constexpr std::chrono::milliseconds kPatience(5);  // until another run is looked at
    bool any = false;
    for (Choice& choice : choices_) {
      if (choice.over) continue;
      Event event;
      const Run::Next next = choices_.size() == 1 ? choice.run->next(event) : choice.run->next(event, kPatience);
      if (next == Run::Next::event) follow(choice, event);
      choice.over = next == Run::Next::over;
      any = any || !choice.over;
    }
    return any;
  }

  Approvals::Question question(const Asked& asked) const { return {completion_.id(), request_.workflow->name, asked}; }

  void follow(Choice& choice, const Event& event) {
    if (request_.stream && !streams_) {  // not before, so that what is refused at once has a status of its own
      streams_ = true;
      sink_.begin();
      for (int index = 0; index < request_.choices; ++index) sink_.data(completion_.first(index));
    }
    const std::chrono::duration<double, std::milli> since = Clock::now() - begin_;
    if (request_.events) sink_.data(completion_.event(event, since.count()));
    if (const auto* warning = std::get_if<Warning>(&event))
      settings_.on_log(fmt::format("{}: warning: {}", request_.workflow->name, warning->message));
    if (const auto* asked = std::get_if<Asked>(&event); asked != nullptr && approvals_.asks()) {
      const std::string id = approvals_.open(question(*asked), Approvals::Side::telling);
      if (request_.stream) sink_.data(completion_.approval(id, *asked));
    }
    const auto* thought = std::get_if<ThinkingToken>(&event);
    const Token* token = thought != nullptr ? thought : std::get_if<Token>(&event);
    if (token == nullptr || !answering_ || token->agent != answering_->agent || token->round != answering_->round)
      return;
    if (thought == nullptr && token->chance) choice.tokens.push_back(*token);
    if (thought == nullptr) return say(choice, token->text);
    if (request_.stream && request_.chat && !token->text.empty())
      sink_.data(completion_.thinking(index_of(choice), token->text));
  }

  void say(Choice& choice, std::string_view text) {
    if (text.empty()) return;
    count_first_token();
    if (!request_.stream) return;
    choice.said += text;
    sink_.data(completion_.text(index_of(choice), text, std::exchange(choice.tokens, {})));
  }

  void finish(const std::vector<RunRecord>& records) {
    metrics_.count_tokens(request_.workflow->name, tokens_of(records));
    for (const RunRecord& record : records) {
      if (const std::optional<ApiError> error = error_of(request_, record, approvals_, settings_.on_log))
        return fail(*error);
    }
    count_first_token();
    if (!request_.stream) {
      std::vector<std::vector<Token>> tokens;
      for (Choice& choice : choices_) tokens.push_back(std::move(choice.tokens));
      return sink_.reply(200, completion_.whole(records, tokens));
    }
    for (Choice& choice : choices_) {
      const RunRecord& record = records[static_cast<std::size_t>(index_of(choice))];
      const std::optional<std::string> calls = completion_.calls(index_of(choice), record);
      const std::string all = calls ? std::string() : answer_of(record);
      if (const std::string thought = thinking_of(request_, record); !answering_ && request_.chat && !thought.empty())
        sink_.data(completion_.thinking(index_of(choice), thought));
      if (!all.starts_with(choice.said)) throw std::logic_error("the answer is not what was streamed of it");
      say(choice, std::string_view(all).substr(choice.said.size()));
      if (calls) sink_.data(*calls);
      if (!choice.tokens.empty()) sink_.data(completion_.text(index_of(choice), "", choice.tokens));
      sink_.data(completion_.last(index_of(choice), record));
    }
    if (request_.include_usage) sink_.data(completion_.usage(records));
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
  Approvals& approvals_;
  const ReplySink& sink_;
  Completion completion_;
  std::optional<TurnInfo> answering_;
  Clock::time_point begin_;
  std::vector<Choice> choices_;
  bool streams_ = false;
  bool counted_ = false;
};

}  // namespace

void answer(const Engine& engine, const ChatRequest& request, const RunSettings& settings, Metrics& metrics,
            Approvals& approvals, const ReplySink& sink) {
  ServedRun(request, settings, metrics, approvals, sink).run(engine);
}

}  // namespace baton::serve
