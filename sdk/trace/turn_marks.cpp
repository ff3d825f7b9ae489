// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/turn_marks.h"

#include <algorithm>
#include <iterator>

namespace baton {
namespace {

constexpr std::size_t kMaxMarked = 1000;  // attempts, calls, tools, inputs of a turn
constexpr std::size_t kMaxSeenTurns = 100'000;

/// "_history_2" at the end of a placeholder's name: 2 rounds back.
int rounds_back(const std::string& placeholder) {
  const std::string mark = "_history_";
  const std::size_t at = placeholder.rfind(mark);
  if (at == std::string::npos) return 0;
  const std::string digits = placeholder.substr(at + mark.size());
  const bool number = !digits.empty() && digits.size() < 5 && digits.find_first_not_of("0123456789") == digits.npos;
  return number ? std::stoi(digits) : 0;
}

/// An event is seen some time after what it tells of, more so on a busy machine; the record's times are the engine's.
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

/// The call that the engine answers now; null: there is none. After tools another prompt follows, without an event.
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
  // Tools that ran one behind the other are told of together, once all have returned.
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

/// Turns of one name, by the times that both the events of their ends and the record have.
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
    // Rounds that ended early leave a decision agent with answers of an earlier round than its own.
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

}  // namespace baton
