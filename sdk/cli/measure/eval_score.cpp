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

void Score::add(const Question& question, std::size_t index, const RunRecord& record) {
  right.count(record.state == RunState::ok && same_answer(final_answer(*workflow, record), question.answer));
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
}

Json json_of(const Score& score) {
  Json by_agent = Json::object();
  for (const auto& [agent, share] : score.right_by_agent) by_agent[agent] = share.value();
  Json params = {{"agents", agents_at_work(*score.workflow).size()}};
  for (const auto& [key, value] : score.method.settings) params[key] = value;
  return {{"method", score.method.name},
          {"params", std::move(params)},
          {"questions", score.right.whole},
          {"accuracy", score.right.value()},
          {"accuracy_by_agent", std::move(by_agent)},
          {"exact_match", score.exact.value()},
          {"greedy_agreement", score.quality.agreement()},
          {"kl_first_token", score.quality.kl_first_token()},
          {"kl_mean", score.quality.kl_mean()},
          {"kv_reuse_rate", score.relayed_entries.value()},
          {"kv_reuse_bound", score.relayed_bound.value()},
          {"kv_reuse_rate_long", score.long_entries.whole > 0 ? Json(score.long_entries.value()) : Json(nullptr)},
          {"recomputed_share", score.recomputed_tokens.value()},
          {"kv_reuse_rate_prompt", score.reused_entries.value()},
          {"ahead_rate", score.ahead_entries.value()},
          {"agent_turn_reuse", score.reused_turns.value()},
          {"agent_turn_reuse_after_50",
           score.warm_reused_turns.whole > 0 ? Json(score.warm_reused_turns.value()) : Json(nullptr)},
          {"anchors_bytes", score.anchors_bytes},
          {"ttft_ms", score.turns > 0 ? score.ttft_ms / static_cast<double>(score.turns) : 0.0},
          {"output_tokens", score.output_tokens},
          {"failed_runs", score.failed},
          {"wall_ms", score.wall_ms}};
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
               100 * score.right.value(), 100 * score.exact.value(), 100 * score.quality.agreement(),
               score.quality.kl_first_token(), score.quality.kl_mean(), 100 * score.relayed_entries.value(),
               100 * score.relayed_bound.value(), 100 * score.recomputed_tokens.value(),
               100 * score.ahead_entries.value(), 100 * score.reused_turns.value(),
               duration(score.turns > 0 ? score.ttft_ms / static_cast<double>(score.turns) : 0.0));
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
    for (const auto& [agent, share] : score.right_by_agent)
      out += fmt::format("  {} {:.1f} %", agent, 100 * share.value());
    if (score.failed > 0) out += fmt::format("  {} runs failed", score.failed);
    out += "\n";
  }
  return out;
}

}  // namespace baton::cli
