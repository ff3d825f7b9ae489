// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/spans.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/base/hash.h"

namespace baton {
namespace {

constexpr std::size_t kMaxMarked = 1000;  // attempts, calls, tools, inputs of a turn
constexpr std::size_t kMaxSeenTurns = 100'000;

/// Returns 2 if "_history_2" is at the end of a placeholder's name; 0: it has no such end.
int rounds_back(const std::string& placeholder) {
  const std::string mark = "_history_";
  const std::size_t at = placeholder.rfind(mark);
  if (at == std::string::npos) return 0;
  const std::string digits = placeholder.substr(at + mark.size());
  const bool number = !digits.empty() && digits.size() < 5 && digits.find_first_not_of("0123456789") == digits.npos;
  return number ? std::stoi(digits) : 0;
}

/// An event is seen some time after what it reports, and later still on a busy machine. The record has the engine's own
/// times, which correct those of the events.
void correct(TurnMarks& turn, const AgentRecord& record) {
  if (turn.attempts.empty() || !turn.over_ms) return;
  ModelCallMarks& first = turn.attempts.back().front();
  if (turn.attempts.back().size() > 1 || !first.tools.empty() || !first.first_token_ms) return;
  first.first_token_ms = std::min(*first.first_token_ms, *turn.over_ms - record.decode_ms);
  first.started_ms = std::min(first.started_ms, *first.first_token_ms - record.prefill_ms);
}

}  // namespace

RunMarks::Seen* RunMarks::seen_of(const std::string& agent, int round) {
  const auto found = seen_.find({agent, round});
  if (found != seen_.end()) return &found->second;
  return seen_.size() < kMaxSeenTurns ? &seen_[{agent, round}] : nullptr;
}

/// Returns the call that the engine answers now; null: there is none. After tools another prompt follows, without an
/// event.
ModelCallMarks* RunMarks::answering(const std::string& agent, int round) {
  Seen* seen = seen_of(agent, round);
  if (seen == nullptr || seen->marks.attempts.empty()) return nullptr;
  std::vector<ModelCallMarks>& calls = seen->marks.attempts.back();
  if (!calls.back().tools.empty() && calls.size() < kMaxMarked)
    calls.push_back({.started_ms = calls.back().tools.back().end_ms});
  return &calls.back();
}

void RunMarks::add_tool(const ToolCalled& event, double t_ms) {
  Seen* seen = seen_of(event.agent, event.round);
  if (seen == nullptr) return;
  std::vector<std::vector<ModelCallMarks>>& attempts = seen->marks.attempts;
  std::vector<ToolMarks>& tools = attempts.empty() ? seen->marks.tools : attempts.back().back().tools;
  if (tools.size() >= kMaxMarked) return;
  tools.push_back({t_ms - event.wall_ms, t_ms, event.tool, event.ok});
  // Tools that ran one after another are reported together, once all have returned.
  for (std::size_t i = tools.size() - 1; i > 0 && tools[i - 1].end_ms > tools[i].begin_ms; --i) {
    const double length = tools[i - 1].end_ms - tools[i - 1].begin_ms;
    tools[i - 1].end_ms = tools[i].begin_ms;
    tools[i - 1].begin_ms = tools[i - 1].end_ms - length;
  }
}

void RunMarks::add(const Event& event, double t_ms) {
  if (const auto* started = std::get_if<AgentStarted>(&event)) {
    Seen* seen = seen_of(started->agent, started->round);
    if (seen != nullptr && seen->marks.attempts.size() < kMaxMarked)
      seen->marks.attempts.push_back({{.started_ms = t_ms, .prompt_tokens = started->prompt_tokens}});
  } else if (const auto* prefill = std::get_if<Prefill>(&event)) {
    ModelCallMarks* call = answering(prefill->agent, prefill->round);
    if (call == nullptr) return;
    call->prefilled_ms = t_ms;
    call->kv = prefill->kv;
  } else if (const auto* token = std::get_if<Token>(&event)) {
    ModelCallMarks* call = answering(token->agent, token->round);
    if (call == nullptr) return;
    if (!call->first_token_ms) call->first_token_ms = t_ms;
    call->last_token_ms = t_ms;
    ++call->tokens;
  } else if (const auto* tool = std::get_if<ToolCalled>(&event)) {
    add_tool(*tool, t_ms);
  } else if (const auto* relayed = std::get_if<Relayed>(&event)) {
    Seen* seen = seen_of(relayed->to, relayed->round);
    if (seen != nullptr && seen->relayed.size() < kMaxMarked)
      seen->relayed.emplace_back(relayed->from, relayed->slot.name);
  } else if (const auto* finished = std::get_if<AgentFinished>(&event)) {
    const AgentRecord& record = finished->record;
    Seen* seen = seen_of(record.agent, record.round);
    if (seen != nullptr && seen->ends.size() < kMaxMarked)
      seen->ends.push_back({t_ms, record.ttft_ms, record.decode_ms});
  }
}

/// Tells turns of the same name apart, by the times that are both in the events of their ends and in the record.
void RunMarks::tell_apart(std::vector<End> ends, const RunRecord& record, const std::vector<std::size_t>& same,
                          std::vector<TurnMarks>& turns) {
  for (const std::size_t i : same) {
    const AgentRecord& agent = record.agents[i];
    turns[i].shares_name = true;
    const auto own = std::find_if(ends.begin(), ends.end(), [&](const End& end) {
      return end.ttft_ms == agent.ttft_ms && end.decode_ms == agent.decode_ms;
    });
    if (own == ends.end()) continue;
    turns[i].over_ms = own->t_ms;
    ends.erase(own);
  }
}

std::vector<TurnMarks> RunMarks::turns(const RunRecord& record) const {
  std::map<Name, std::vector<std::size_t>> named;
  std::map<std::string, std::map<int, std::size_t>> spoke;  // by agent and round: turns that were not skipped
  for (std::size_t i = 0; i < record.agents.size(); ++i) {
    const AgentRecord& agent = record.agents[i];
    named[{agent.agent, agent.round}].push_back(i);
    if (agent.state != TurnState::skipped) spoke[agent.agent].emplace(agent.round, i);
  }
  std::vector<TurnMarks> turns(record.agents.size());
  for (const auto& [name, same] : named) {
    const auto found = seen_.find(name);
    if (found == seen_.end()) continue;
    const Seen& seen = found->second;
    if (same.size() > 1) {
      tell_apart(seen.ends, record, same, turns);
      continue;
    }
    TurnMarks& turn = turns[same.front()] = seen.marks;
    if (!seen.ends.empty()) turn.over_ms = seen.ends.back().t_ms;
    correct(turn, record.agents[same.front()]);
    // If rounds ended early, a decision agent reads answers of an earlier round than its own.
    for (const auto& [from, placeholder] : seen.relayed) {
      const auto rounds = spoke.find(from);
      if (rounds == spoke.end()) continue;
      const auto behind = rounds->second.upper_bound(name.second - rounds_back(placeholder));
      if (behind == rounds->second.begin()) continue;
      const std::size_t input = std::prev(behind)->second;
      if (std::find(turn.inputs.begin(), turn.inputs.end(), input) == turn.inputs.end()) turn.inputs.push_back(input);
    }
  }
  return turns;
}

namespace {

constexpr const char* kProvider = "baton";

/// Returns the Unix time of a date such as "2026-01-31T12:00:00.250Z", with or without a fraction; 0: it is not such a
/// date.
std::int64_t unix_ns(const std::string& date) {
  using namespace std::chrono;
  int y = 0, hour = 0, minute = 0, second = 0, fraction = 0;
  unsigned m = 0, d = 0;
  const int found =
      std::sscanf(date.c_str(), "%4d-%2u-%2uT%2d:%2d:%2d.%3dZ", &y, &m, &d, &hour, &minute, &second, &fraction);
  const year_month_day date_of{year{y}, month{m}, day{d}};
  if (found < 6 || y < 1970 || y > 2200 || !date_of.ok()) return 0;
  const auto time = sys_days{date_of} + hours(hour) + minutes(minute) + seconds(second) + milliseconds(fraction);
  return std::max<std::int64_t>(0, duration_cast<nanoseconds>(time.time_since_epoch()).count());
}

/// A model as spans name it: by its file or folder if the record has it, otherwise as the workflow does.
struct NamedModel {
  std::string name;
  std::string host;  // the server that has the model, or empty
  std::optional<std::int64_t> port;
};

/// True if all turns use one model; the record's `model_path` is then the path of that model.
bool has_one_model(const RunRecord& record) {
  std::string_view one;  // a turn without a prompt has none
  for (const AgentRecord& agent : record.agents) {
    if (agent.model.empty()) continue;
    if (!one.empty() && agent.model != one) return false;
    one = agent.model;
  }
  return true;
}

NamedModel model_of(const RunRecord& record, const AgentRecord& agent, bool only_one) {
  NamedModel model{agent.model, {}, {}};
  if (!only_one || record.model_path.empty()) return model;
  std::string_view path = record.model_path;
  const std::size_t scheme = path.find("://");
  if (scheme == path.npos) {
    while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
    model.name = path.substr(path.rfind('/') + 1);
    return model;
  }
  const bool is_secure = path.starts_with("https:");
  path.remove_prefix(scheme + 3);
  path = path.substr(0, path.find_first_of("/?#"));
  const std::size_t colon = path.rfind(':');
  const bool has_port = colon != path.npos && path.find(']', colon) == path.npos;
  model.host = path.substr(0, has_port ? colon : path.npos);
  model.port = has_port ? std::atoi(std::string(path.substr(colon + 1)).c_str()) : is_secure ? 443 : 80;
  return model;
}

/// Returns the number of a prompt's tokens whose KV was in a cache, computed from the reused fraction of its entries.
std::int64_t cached_tokens(const KvRecord& kv, std::int64_t prompt_tokens) {
  if (kv.entries <= 0) return 0;
  const std::int64_t reused = std::clamp<std::int64_t>(kv.reused, 0, kv.entries);  // a stored record may have any value
  const double tokens = static_cast<double>(prompt_tokens) * static_cast<double>(reused);
  return static_cast<std::int64_t>(std::floor(tokens / static_cast<double>(kv.entries)));
}

void add_kv(SpanAttributes& attributes, const KvRecord& kv) {
  attributes.emplace_back("baton.kv.entries", kv.entries);
  attributes.emplace_back("baton.kv.reused", kv.reused);
  attributes.emplace_back("baton.kv.computed", kv.computed);
  attributes.emplace_back("baton.kv.ahead", kv.ahead);
}

/// Returns the name that OpenTelemetry's conventions have for the reason why a model stopped.
std::string finish_of(FinishReason reason) {
  return reason == FinishReason::eos ? "stop" : std::string(name_of(reason));
}

class TraceBuilder {
 public:
  TraceBuilder(const RunRecord& record, const std::vector<TurnMarks>& marks)
      : record_(record), marks_(marks), only_one_model_(has_one_model(record)) {}

  RunTrace build() {
    name_trace();
    trace_.spans.push_back(run_span());
    turns_.assign(record_.agents.size(), 0);
    for (std::size_t i = 0; i < record_.agents.size(); ++i) add_turn(i);
    for (std::size_t i = 0; i < record_.agents.size(); ++i) {
      if (turns_[i] == 0) continue;
      TraceSpan& span = trace_.spans[turns_[i]];
      for (const std::size_t input : marks_[i].inputs) {
        if (turns_[input] != 0) span.inputs.push_back(trace_.spans[turns_[input]].id);
      }
    }
    return std::move(trace_);
  }

 private:
  /// Makes the trace's id from what a stored record keeps bit for bit. The texts of models are left out: they may be
  /// invalid UTF-8, and JSON replaces such bytes.
  void name_trace() {
    StreamHash hash;
    const auto add = [&](const std::string& text) { hash.add(text.c_str(), text.size() + 1); };
    add(fmt::format("{} {} {} {}", record_.date, record_.seed, record_.wall_ms, record_.load_ms));
    add(record_.workflow);
    add(record_.model_fingerprint);
    for (const AgentRecord& agent : record_.agents) {
      add(fmt::format("{} {} {} {} {}", agent.round, agent.prompt_tokens, agent.ttft_ms, agent.decode_ms,
                      agent.output_tokens));
      add(agent.agent);
    }
    trace_.id = hash.hex();
    trace_.version = record_.version;
    trace_.start_unix_ns = unix_ns(record_.date);
  }

  std::uint64_t next_id() {
    const std::string text = fmt::format("{} {}", trace_.id, trace_.spans.size());
    return std::max<std::uint64_t>(1, hash_bytes(text.data(), text.size()));
  }

  TraceSpan run_span() {
    TraceSpan span;
    span.id = next_id();
    span.name = record_.workflow.empty() ? "invoke_workflow" : "invoke_workflow " + record_.workflow;
    span.end_ms = std::max(0.0, record_.wall_ms);
    for (const TurnMarks& turn : marks_) span.end_ms = std::max(span.end_ms, turn.over_ms.value_or(0));
    SpanAttributes& to = span.attributes;
    to.emplace_back("gen_ai.operation.name", "invoke_workflow");
    if (!record_.workflow.empty()) to.emplace_back("gen_ai.workflow.name", record_.workflow);
    to.emplace_back("baton.state", std::string(name_of(record_.state)));
    to.emplace_back("baton.device", record_.device);
    to.emplace_back("baton.threads", std::int64_t{record_.threads});
    to.emplace_back("baton.relay", record_.relay);
    to.emplace_back("baton.seed", fmt::format("{}", record_.seed));  // attributes are signed
    to.emplace_back("baton.model.fingerprint", record_.model_fingerprint);
    to.emplace_back("baton.load_ms", record_.load_ms);
    to.emplace_back("baton.measure_ms", record_.measure_ms);
    to.emplace_back("baton.memory.kv_peak_bytes", record_.memory.kv_peak_bytes);
    const bool failed = record_.state != RunState::ok && record_.state != RunState::suspended;
    const bool has_kind = record_.state == RunState::failed && record_.error_kind;
    if (failed) fail(span, std::string(has_kind ? name_of(*record_.error_kind) : name_of(record_.state)));
    return span;
  }

  static void fail(TraceSpan& span, std::string type) {
    span.failed = true;
    span.attributes.emplace_back("error.type", std::move(type));
  }

  /// True if the events and the record disagree about what the turn did, because an earlier process ran it.
  static bool is_taken_over(const TurnMarks& marks, const AgentRecord& agent) {
    if (marks.shares_name || !marks.attempts.empty()) return false;
    return agent.finish_reason.has_value() || (marks.tools.empty() && !agent.tools.empty());
  }

  void add_turn(std::size_t number) {
    const AgentRecord& agent = record_.agents[number];
    const TurnMarks& marks = marks_[number];
    if (!marks.over_ms || agent.state == TurnState::skipped || is_taken_over(marks, agent)) return;
    TraceSpan& run = trace_.spans.front();
    TraceSpan turn;
    turn.id = next_id();
    turn.parent = run.id;
    turn.agent = agent.agent;
    turn.name = "invoke_agent " + agent.agent;
    turn.end_ms = std::clamp(*marks.over_ms, 0.0, run.end_ms);
    turn.begin_ms = std::clamp(begin_of(marks, agent), 0.0, turn.end_ms);
    turns_[number] = trace_.spans.size();
    trace_.spans.push_back(turn);
    at_ms_ = turn.begin_ms;
    for (const ToolMarks& tool : marks.tools) add_tool(tool, turn);
    const double asked_ms = marks.attempts.empty() ? at_ms_ : marks.attempts.front().front().started_ms;
    const double queue_ms = std::max(0.0, asked_ms - at_ms_);
    for (std::size_t i = 0; i < marks.attempts.size(); ++i) add_attempt(number, i, turn);
    describe_turn(trace_.spans[turns_[number]], marks, agent, queue_ms);
  }

  /// Returns when the turn's inputs were complete. No event marks this moment, but the record's time to first token
  /// begins there.
  static double begin_of(const TurnMarks& marks, const AgentRecord& agent) {
    if (marks.shares_name) return *marks.over_ms - agent.decode_ms - agent.ttft_ms;
    double begin = *marks.over_ms;
    if (!marks.attempts.empty()) begin = std::min(begin, marks.attempts.front().front().started_ms);
    const std::optional<double> first =
        marks.attempts.size() == 1 ? marks.attempts.front().front().first_token_ms : std::nullopt;
    if (first && agent.ttft_ms > 0) begin = std::min(begin, *first - agent.ttft_ms);
    if (!marks.tools.empty()) begin = std::min(begin, marks.tools.front().begin_ms);
    return begin;
  }

  void describe_turn(TraceSpan& turn, const TurnMarks& marks, const AgentRecord& agent, double queue_ms) {
    SpanAttributes& to = turn.attributes;
    to.emplace_back("gen_ai.operation.name", "invoke_agent");
    to.emplace_back("gen_ai.provider.name", kProvider);
    to.emplace_back("gen_ai.agent.name", agent.agent);
    if (!agent.role.empty()) to.emplace_back("gen_ai.agent.description", agent.role);
    if (agent.finish_reason) {
      to.emplace_back("gen_ai.request.model", model_of(record_, agent, only_one_model_).name);
      to.emplace_back("gen_ai.response.finish_reasons", std::vector{finish_of(*agent.finish_reason)});
      to.emplace_back("gen_ai.usage.input_tokens", agent.prompt_tokens);
      to.emplace_back("gen_ai.usage.output_tokens", agent.output_tokens);
      to.emplace_back("gen_ai.usage.cache_read.input_tokens", cached_tokens(agent.kv, agent.prompt_tokens));
      add_kv(to, agent.kv);
      to.emplace_back("baton.ttft_ms", agent.ttft_ms);
      to.emplace_back("baton.drafted_tokens", agent.drafted_tokens);
      to.emplace_back("baton.accepted_tokens", agent.accepted_tokens);
    }
    if (!marks.attempts.empty()) to.emplace_back("baton.queue_ms", queue_ms);
    to.emplace_back("baton.round", std::int64_t{agent.round});
    to.emplace_back("baton.attempts", std::int64_t{agent.attempts});
    to.emplace_back("baton.state", std::string(name_of(agent.state)));
    if (agent.state != TurnState::ok) fail(turn, std::string(name_of(agent.state)));
    add_placeholders(turn, marks, agent);
  }

  /// Adds how each placeholder's KV was obtained, at the time when the prompt was complete.
  void add_placeholders(TraceSpan& turn, const TurnMarks& marks, const AgentRecord& agent) {
    double at = turn.begin_ms;
    if (!marks.attempts.empty()) {
      const ModelCallMarks& call = marks.attempts.back().front();
      at = std::clamp(call.prefilled_ms.value_or(call.started_ms), turn.begin_ms, turn.end_ms);
    }
    for (const SlotRecord& slot : agent.slots) {
      SpanMoment& moment = turn.moments.emplace_back(SpanMoment{at, "baton.placeholder"});
      moment.attributes = {{"baton.placeholder.name", slot.name},
                           {"baton.placeholder.tokens", slot.tokens},
                           {"baton.placeholder.method", slot.method},
                           {"baton.placeholder.reused_tokens", slot.reused_tokens},
                           {"baton.placeholder.recomputed_tokens", slot.recomputed_tokens},
                           {"baton.placeholder.ahead_tokens", slot.ahead_tokens},
                           {"baton.placeholder.kv_reuse_rate", slot.kv_reuse_rate},
                           {"baton.placeholder.hops", std::int64_t{slot.hops}},
                           {"baton.placeholder.reason", slot.reason}};
    }
  }

  /// Adds a span within `turn` that begins no earlier than the last one ended, whatever the times say. Returns the
  /// span.
  TraceSpan& add_inside(const TraceSpan& turn, double begin_ms, double end_ms) {
    TraceSpan span;
    span.id = next_id();
    span.parent = turn.id;
    span.agent = turn.agent;
    span.begin_ms = std::clamp(begin_ms, at_ms_, std::max(at_ms_, turn.end_ms));
    span.end_ms = std::clamp(end_ms, span.begin_ms, std::max(span.begin_ms, turn.end_ms));
    at_ms_ = span.end_ms;
    return trace_.spans.emplace_back(std::move(span));
  }

  void add_tool(const ToolMarks& tool, const TraceSpan& turn) {
    TraceSpan& span = add_inside(turn, tool.begin_ms, tool.end_ms);
    span.name = "execute_tool " + tool.tool;
    span.attributes = {
        {"gen_ai.operation.name", "execute_tool"}, {"gen_ai.tool.name", tool.tool}, {"gen_ai.agent.name", turn.agent}};
    if (!tool.ok) fail(span, "tool_error");
  }

  void add_attempt(std::size_t number, std::size_t attempt, const TraceSpan& turn) {
    const std::vector<std::vector<ModelCallMarks>>& attempts = marks_[number].attempts;
    const std::vector<ModelCallMarks>& calls = attempts[attempt];
    const bool is_last = attempt + 1 == attempts.size();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const ModelCallMarks& call = calls[i];
      const bool ends_attempt = i + 1 == calls.size();
      double end = call.last_token_ms.value_or(call.prefilled_ms.value_or(call.started_ms));
      if (!call.tools.empty()) {
        end = std::max(end, call.tools.front().begin_ms);
      } else if (is_last && ends_attempt) {
        end = turn.end_ms;
      } else if (!is_last) {
        end = std::min(end, attempts[attempt + 1].front().started_ms);
      }
      TraceSpan& span = add_call(number, calls, call, end, turn);
      span.attributes.emplace_back("baton.attempt", static_cast<std::int64_t>(attempt + 1));
      std::optional<FinishReason> reason;
      if (is_last && ends_attempt) reason = record_.agents[number].finish_reason;
      if (const std::string text = !call.tools.empty() ? "tool_call" : reason ? finish_of(*reason) : ""; !text.empty())
        span.attributes.emplace_back("gen_ai.response.finish_reasons", std::vector{text});
      if (!is_last && ends_attempt) fail(span, "attempt_failed");
      if (reason && (*reason == FinishReason::error || *reason == FinishReason::cancelled))
        fail(span, finish_of(*reason));
      for (const ToolMarks& tool : call.tools) add_tool(tool, turn);
    }
  }

  /// Adds the span of a call. If the turn had only one call, the record has the call's tokens. Otherwise the record has
  /// sums, and the events say more.
  TraceSpan& add_call(std::size_t number, const std::vector<ModelCallMarks>& calls, const ModelCallMarks& call,
                      double end_ms, const TraceSpan& turn) {
    const AgentRecord& agent = record_.agents[number];
    const bool is_only = marks_[number].attempts.size() == 1 && calls.size() == 1;
    const NamedModel model = model_of(record_, agent, only_one_model_);
    TraceSpan& span = add_inside(turn, call.started_ms, end_ms);
    span.name = model.name.empty() ? "chat" : "chat " + model.name;
    span.calls_out = !model.host.empty();
    SpanAttributes& to = span.attributes;
    to.emplace_back("gen_ai.operation.name", "chat");
    to.emplace_back("gen_ai.provider.name", kProvider);
    to.emplace_back("gen_ai.agent.name", agent.agent);
    if (!model.name.empty()) to.emplace_back("gen_ai.request.model", model.name);
    if (!model.host.empty()) to.emplace_back("server.address", model.host);
    if (model.port) to.emplace_back("server.port", *model.port);
    to.emplace_back("gen_ai.request.stream", true);
    if (const std::int64_t tokens = is_only ? agent.prompt_tokens : prompt_tokens(calls, call); tokens > 0) {
      to.emplace_back("gen_ai.usage.input_tokens", tokens);
      to.emplace_back("gen_ai.usage.cache_read.input_tokens", cached_tokens(call.kv, tokens));
    }
    to.emplace_back("gen_ai.usage.output_tokens", is_only ? agent.output_tokens : call.tokens);
    if (call.prefilled_ms) add_kv(to, call.kv);
    if (!call.first_token_ms) return span;
    const double first = std::clamp(*call.first_token_ms, span.begin_ms, span.end_ms);
    to.emplace_back("gen_ai.response.time_to_first_chunk", (first - span.begin_ms) / 1000);
    span.moments.push_back({first, "baton.first_token"});
    return span;
  }

  /// Returns the tokens of a call's prompt; 0: unknown. Those of a turn's first prompt are known. A later prompt runs
  /// through as many layers, so its tokens follow from its KV entries.
  static std::int64_t prompt_tokens(const std::vector<ModelCallMarks>& calls, const ModelCallMarks& call) {
    if (call.prompt_tokens > 0) return call.prompt_tokens;
    const ModelCallMarks& first = calls.front();
    if (first.prompt_tokens <= 0 || first.kv.entries % first.prompt_tokens != 0) return 0;
    const std::int64_t layers = first.kv.entries / first.prompt_tokens;
    return layers > 0 ? call.kv.entries / layers : 0;
  }

  const RunRecord& record_;
  const std::vector<TurnMarks>& marks_;
  const bool only_one_model_;
  RunTrace trace_;
  std::vector<std::size_t> turns_;  // for each turn the index of its span; 0: none
  double at_ms_ = 0;                // the end of the turn's last span
};

}  // namespace

RunTrace spans_of(const RunRecord& record, const std::vector<TurnMarks>& marks) {
  return TraceBuilder(record, marks).build();
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kConventions = "https://opentelemetry.io/schemas/1.41.0";
constexpr int kInternal = 1, kClient = 3;  // SpanKind
constexpr int kError = 2;                  // Status
constexpr double kMaxMs = 1e12;            // since the run started; as nanoseconds they fit into 64 bits

/// Returns a value as OTLP writes it. Numbers of 64 bits are texts in the JSON of protocol buffers.
OrderedJson otlp_of(const SpanValue& value) {
  struct {
    OrderedJson operator()(bool truth) const { return {{"boolValue", truth}}; }
    OrderedJson operator()(std::int64_t number) const { return {{"intValue", std::to_string(number)}}; }
    OrderedJson operator()(double number) const { return {{"doubleValue", std::isfinite(number) ? number : 0.0}}; }
    OrderedJson operator()(const std::string& text) const { return {{"stringValue", text}}; }
    OrderedJson operator()(const std::vector<std::string>& texts) const {
      OrderedJson values = OrderedJson::array();
      for (const std::string& text : texts) values.push_back({{"stringValue", text}});
      return {{"arrayValue", {{"values", std::move(values)}}}};
    }
  } json;
  return std::visit(json, value);
}

OrderedJson otlp_of(const SpanAttributes& attributes) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [key, value] : attributes) list.push_back({{"key", key}, {"value", otlp_of(value)}});
  return list;
}

std::string hex(std::uint64_t id) { return fmt::format("{:016x}", id); }

std::string time_of(const RunTrace& trace, double ms) {
  return std::to_string(trace.start_unix_ns + std::llround(std::min(ms, kMaxMs) * 1e6));
}

OrderedJson otlp_of(const RunTrace& trace, const TraceSpan& span) {
  OrderedJson json = {{"traceId", trace.id}, {"spanId", hex(span.id)}};
  if (span.parent != 0) json["parentSpanId"] = hex(span.parent);
  json["name"] = span.name;
  json["kind"] = span.calls_out ? kClient : kInternal;
  json["startTimeUnixNano"] = time_of(trace, span.begin_ms);
  json["endTimeUnixNano"] = time_of(trace, span.end_ms);
  json["attributes"] = otlp_of(span.attributes);
  for (const SpanMoment& moment : span.moments) {
    json["events"].push_back({{"timeUnixNano", time_of(trace, moment.at_ms)},
                              {"name", moment.name},
                              {"attributes", otlp_of(moment.attributes)}});
  }
  for (const std::uint64_t input : span.inputs)
    json["links"].push_back({{"traceId", trace.id}, {"spanId", hex(input)}});
  json["status"] = span.failed ? OrderedJson{{"code", kError}} : OrderedJson::object();
  return json;
}

}  // namespace

std::string otlp_json(const RunTrace& trace, const std::map<std::string, std::string>& resource) {
  OrderedJson spans = OrderedJson::array();
  for (const TraceSpan& span : trace.spans) spans.push_back(otlp_of(trace, span));
  SpanAttributes of_resource;
  for (const auto& [key, value] : resource) of_resource.emplace_back(key, value);
  const OrderedJson scoped = {{"scope", {{"name", "baton"}, {"version", trace.version}}},
                              {"spans", std::move(spans)},
                              {"schemaUrl", kConventions}};
  const OrderedJson all = {{"resource", {{"attributes", otlp_of(of_resource)}}},
                           {"scopeSpans", OrderedJson::array({scoped})}};
  const OrderedJson request = {{"resourceSpans", OrderedJson::array({all})}};
  return request.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

namespace {

constexpr int kProcess = 1;

OrderedJson chrome_args_of(const SpanAttributes& attributes) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, value] : attributes)
    json[key] = std::visit([](const auto& one) { return OrderedJson(one); }, value);
  return json;
}

/// Return microseconds, rounded to nanoseconds.
double us(double ms) { return std::round(ms * 1e6) / 1e3; }
double us_between(double begin_ms, double end_ms) {
  return (std::round(end_ms * 1e6) - std::round(begin_ms * 1e6)) / 1e3;
}

class ChromeTrace {
 public:
  explicit ChromeTrace(const RunTrace& trace) : trace_(trace) {}

  OrderedJson events() {
    add_name("process_name", 0, trace_.spans.empty() ? "" : trace_.spans.front().name);
    for (const TraceSpan& span : trace_.spans) add(span);
    for (const TraceSpan& span : trace_.spans) {
      for (const std::uint64_t input : span.inputs) add_arrow(*spans_.at(input), span);
    }
    return std::move(events_);
  }

 private:
  void add_name(const char* what, std::size_t row, const std::string& name) {
    events_.push_back({{"ph", "M"}, {"name", what}, {"pid", kProcess}, {"tid", row}, {"args", {{"name", name}}}});
  }

  /// Returns the row of a span: for a turn, a row of its agent that is free at that time; for a span inside a turn, the
  /// turn's.
  std::size_t row_of(const TraceSpan& span) {
    if (const auto parent = row_of_.find(span.parent); parent != row_of_.end() && parent->second != 0)
      return parent->second;
    std::multimap<double, std::size_t>& rows = free_[span.agent];
    std::size_t row = rows_;
    if (!rows.empty() && rows.begin()->first <= span.begin_ms) {
      row = rows.begin()->second;
      rows.erase(rows.begin());
    } else {
      add_name("thread_name", rows_++, span.agent.empty() ? "run" : span.agent);
    }
    rows.emplace(span.end_ms, row);
    return row;
  }

  void add_slice(const std::string& name, std::size_t row, double begin_ms, double end_ms, OrderedJson args) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", "baton"},
                       {"pid", kProcess},
                       {"tid", row},
                       {"ts", us(begin_ms)},
                       {"dur", std::max(0.0, us_between(begin_ms, end_ms))},
                       {"args", std::move(args)}});
  }

  void add(const TraceSpan& span) {
    const std::size_t row = row_of(span);
    row_of_[span.id] = row;
    spans_[span.id] = &span;
    OrderedJson args = chrome_args_of(span.attributes);
    if (span.failed) args["failed"] = true;
    for (const SpanMoment& moment : span.moments) {
      if (moment.attributes.empty()) continue;
      args[moment.name].push_back(chrome_args_of(moment.attributes));
    }
    add_slice(span.name, row, span.begin_ms, span.end_ms, std::move(args));
    for (const SpanMoment& moment : span.moments) {
      if (!moment.attributes.empty()) continue;  // the first token: before it the prompt, then the answer
      add_slice("prefill", row, span.begin_ms, moment.at_ms, OrderedJson::object());
      add_slice("decode", row, moment.at_ms, span.end_ms, OrderedJson::object());
    }
  }

  /// Adds an arrow from one turn's end to another's beginning. It starts one microsecond before the end, so that it is
  /// still inside the first turn's slice.
  void add_arrow(const TraceSpan& from, const TraceSpan& to) {
    OrderedJson start = {{"ph", "s"}, {"name", "answer"}, {"cat", "baton"}, {"id", ++arrows_}, {"pid", kProcess}};
    OrderedJson end = start;
    start["tid"] = row_of_.at(from.id);
    start["ts"] = std::max(us(from.begin_ms), us(from.end_ms) - 1);
    end["ph"] = "f";
    end["bp"] = "e";
    end["tid"] = row_of_.at(to.id);
    end["ts"] = us(to.begin_ms);
    events_.push_back(std::move(start));
    events_.push_back(std::move(end));
  }

  const RunTrace& trace_;
  OrderedJson events_ = OrderedJson::array();
  std::size_t rows_ = 0;
  std::map<std::string, std::multimap<double, std::size_t>> free_;  // rows of an agent, by the end of their last slice
  std::unordered_map<std::uint64_t, std::size_t> row_of_;           // by span
  std::unordered_map<std::uint64_t, const TraceSpan*> spans_;
  int arrows_ = 0;
};

}  // namespace

std::string chrome_json(const RunTrace& trace) {
  const OrderedJson all = {{"displayTimeUnit", "ms"},
                           {"otherData", {{"trace", trace.id}, {"start_unix_ns", std::to_string(trace.start_unix_ns)}}},
                           {"traceEvents", ChromeTrace(trace).events()}};
  return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace baton
