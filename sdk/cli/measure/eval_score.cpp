// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/eval_score.h"

#include <baton/reuse_method.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The last turn of an agent that came to an end, or null.
const AgentRecord* last_turn(const RunRecord& record, const std::string& agent) {
  const AgentRecord* last = nullptr;
  for (const auto& turn : record.agents) {
    if (turn.agent == agent && turn.state == TurnState::ok) last = &turn;
  }
  return last;
}

bool is_exact(const SlotRecord& slot) {
  const ReuseMethod* method = find_reuse_method(slot.method);
  return method != nullptr && method->exact;
}

}  // namespace

std::vector<std::string> agents_at_work(const Workflow& workflow) {
  std::vector<std::string> agents;
  for (const TurnInfo& turn : workflow.turns()) {
    if (std::find(agents.begin(), agents.end(), turn.agent) == agents.end()) agents.push_back(turn.agent);
  }
  return agents;
}

std::string final_answer(const Workflow& workflow, const RunRecord& record) {
  const AgentRecord* turn = last_turn(record, workflow.turns().back().agent);
  if (turn != nullptr && !turn->answer.empty()) return turn->answer;
  const auto agents = workflow.agents();
  const bool has_pattern = std::any_of(agents.begin(), agents.end(), [&](const AgentInfo& agent) {
    return agent.id == workflow.turns().back().agent && agent.has_answer;
  });
  if (has_pattern) return {};
  if (const auto output = record.outputs.find("answer"); output != record.outputs.end()) return output->second;
  return turn == nullptr ? std::string() : turn->output;
}

Tally empty_tally(const Workflow& workflow) {
  Tally tally;
  const auto at_work = agents_at_work(workflow);
  for (const auto& agent : workflow.agents()) {
    if (agent.has_answer && std::find(at_work.begin(), at_work.end(), agent.id) != at_work.end())
      tally.right_by_agent.emplace_back(agent.id, Share{});
  }
  return tally;
}

void Tally::add(const Workflow& workflow, const Question& question, std::size_t index, const RunRecord& record) {
  right.count(record.state == RunState::ok && same_answer(final_answer(workflow, record), question.answer));
  failed += record.state == RunState::ok ? 0 : 1;
  for (auto& [agent, share] : right_by_agent) {
    const AgentRecord* turn = last_turn(record, agent);
    share.count(turn != nullptr && same_answer(turn->answer, question.answer));
  }
  for (const auto& turn : record.agents) {
    if (turn.prompt_tokens == 0) continue;
    reused_entries.part += turn.kv.reused;
    reused_entries.whole += turn.kv.entries;
    if (&turn != &record.agents.front()) ahead_entries.add(turn.kv.ahead, turn.kv.entries);
    const bool skipped = !turn.slots.empty() && std::all_of(turn.slots.begin(), turn.slots.end(), [](const auto& slot) {
      return !is_exact(slot) || slot.recomputed_tokens == 0;
    });
    reused_turns.count(skipped);
    if (index >= kWarmUp) warm_reused_turns.count(skipped);
    for (const auto& slot : turn.slots) {
      if (is_exact(slot) || slot.tokens == 0) continue;
      const std::int64_t entries = turn.kv.entries / turn.prompt_tokens * slot.tokens;
      const auto part = [&](double rate) { return std::llround(rate * static_cast<double>(entries)); };
      relayed_entries.add(part(slot.kv_reuse_rate), entries);
      relayed_bound.add(part(slot.kv_reuse_bound), entries);
      if (slot.tokens >= kLongTokens) long_entries.add(part(slot.kv_reuse_rate), entries);
      recomputed_tokens.whole += slot.tokens;
      recomputed_tokens.part += slot.recomputed_tokens;
    }
    anchors_bytes = std::max(anchors_bytes, record.memory.anchors_bytes);
    ttft_ms += turn.ttft_ms;
    ++turns;
    output_tokens += turn.output_tokens;
  }
  wall_ms += record.wall_ms;
}

void Tally::merge(const Tally& other) {
  const auto add = [](Share& share, const Share& more) { share.add(more.part, more.whole); };
  add(right, other.right);
  for (std::size_t i = 0; i < right_by_agent.size(); ++i) add(right_by_agent[i].second, other.right_by_agent[i].second);
  add(exact, other.exact);
  add(reused_entries, other.reused_entries);
  add(ahead_entries, other.ahead_entries);
  add(relayed_entries, other.relayed_entries);
  add(relayed_bound, other.relayed_bound);
  add(long_entries, other.long_entries);
  add(recomputed_tokens, other.recomputed_tokens);
  add(reused_turns, other.reused_turns);
  add(warm_reused_turns, other.warm_reused_turns);
  anchors_bytes = std::max(anchors_bytes, other.anchors_bytes);
  ttft_ms += other.ttft_ms;
  turns += other.turns;
  output_tokens += other.output_tokens;
  failed += other.failed;
  wall_ms += other.wall_ms;
}

Json json_of(const Score& score) {
  const Tally& tally = score.tally;
  Json by_agent = Json::object();
  for (const auto& [agent, share] : tally.right_by_agent) by_agent[agent] = share.value();
  Json params = {{"agents", agents_at_work(*score.workflow).size()}};
  for (const auto& [key, value] : score.method.settings) params[key] = value;
  return {{"method", score.method.name},
          {"params", std::move(params)},
          {"questions", tally.right.whole},
          {"accuracy", tally.right.value()},
          {"accuracy_by_agent", std::move(by_agent)},
          {"exact_match", tally.exact.value()},
          {"greedy_agreement", score.quality.agreement()},
          {"kl_first_token", score.quality.kl_first_token()},
          {"kl_mean", score.quality.kl_mean()},
          {"kv_reuse_rate", tally.relayed_entries.value()},
          {"kv_reuse_bound", tally.relayed_bound.value()},
          {"kv_reuse_rate_long", tally.long_entries.whole > 0 ? Json(tally.long_entries.value()) : Json(nullptr)},
          {"recomputed_share", tally.recomputed_tokens.value()},
          {"kv_reuse_rate_prompt", tally.reused_entries.value()},
          {"ahead_rate", tally.ahead_entries.value()},
          {"agent_turn_reuse", tally.reused_turns.value()},
          {"agent_turn_reuse_after_50",
           tally.warm_reused_turns.whole > 0 ? Json(tally.warm_reused_turns.value()) : Json(nullptr)},
          {"anchors_bytes", tally.anchors_bytes},
          {"ttft_ms", tally.turns > 0 ? tally.ttft_ms / static_cast<double>(tally.turns) : 0.0},
          {"output_tokens", tally.output_tokens},
          {"failed_runs", tally.failed},
          {"wall_ms", tally.wall_ms}};
}

std::string table_of(const std::vector<Score>& scores, const Quality* floor) {
  std::size_t width = 12;
  for (const auto& score : scores) width = std::max(width, score.method.text.size() + 1);
  const auto columns = static_cast<int>(width);
  std::string out =
      padded("method", columns) +
      "  right   exact   agree   KL first    KL mean  reused  (at most)  recomputed    ahead   turns  first token\n";
  for (const auto& score : scores) {
    out += padded(score.method.text, columns) +
           fmt::format(
               " {:5.1f} % {:5.1f} % {:5.1f} %  {:9.2e}  {:9.2e} {:5.1f} %    {:5.1f} %     {:5.1f} %  {:5.1f} %  "
               "{:5.1f} %  {:>11}\n",
               100 * score.tally.right.value(), 100 * score.tally.exact.value(), 100 * score.quality.agreement(),
               score.quality.kl_first_token(), score.quality.kl_mean(), 100 * score.tally.relayed_entries.value(),
               100 * score.tally.relayed_bound.value(), 100 * score.tally.recomputed_tokens.value(),
               100 * score.tally.ahead_entries.value(), 100 * score.tally.reused_turns.value(),
               duration(score.tally.turns > 0 ? score.tally.ttft_ms / static_cast<double>(score.tally.turns) : 0.0));
  }
  if (floor != nullptr) {
    out += padded("noise floor", columns) +
           fmt::format("{:26}  {:9.2e}  {:9.2e}\n", "", floor->kl_first_token(), floor->kl_mean());
  }
  return out;
}

std::string agents_of(const std::vector<Score>& scores) {
  std::string out;
  for (const auto& score : scores) {
    out += fmt::format("{}:", score.method.text);
    for (const auto& [agent, share] : score.tally.right_by_agent)
      out += fmt::format("  {} {:.1f} %", agent, 100 * share.value());
    if (score.tally.failed > 0) out += fmt::format("  {} runs failed", score.tally.failed);
    out += "\n";
  }
  return out;
}

}  // namespace baton::cli
