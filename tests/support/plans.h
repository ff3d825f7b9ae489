// SPDX-License-Identifier: Apache-2.0
// Plans built by hand, without YAML and topology.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/scripted_engine.h"
#include "workflows/format/output.h"
#include "workflows/run/executor.h"

namespace baton::test {

/// Turns are added in order; prompts are "role:<agent>|" and then each slot between bars.
class PlanBuilder {
 public:
  PlanBuilder() {
    spec.name = "test";
    spec.inputs.emplace_back().name = "question";
    plan.relay = "full";
  }

  PlannedTurn& add(const std::string& agent, const std::vector<int>& needs, int round = 1) {
    if (spec.agent(agent) == nullptr) {
      AgentSpec& made = spec.agents.emplace_back();
      made.id = agent;
      made.role = "role of " + agent;
    }
    PlannedTurn& turn = plan.turns.emplace_back();
    turn.id = round == 1 ? agent : agent + "#" + std::to_string(round);
    turn.agent = agent;
    turn.round = round;
    turn.needs = needs;
    turn.model = "main";
    std::vector<PromptPiece> pieces{{"role:" + agent + "|", ""}, {"", "question"}, {"|", ""}};
    turn.slots.push_back({"question", SlotSource::Kind::input, -1, &full_method(), "an input"});
    for (const int need : needs) {
      const PlannedTurn& from = plan.turns[static_cast<std::size_t>(need)];
      const std::string name =
          "agent_" + from.agent + (from.round == round ? "_current" : "_history_" + std::to_string(round - from.round));
      turn.slots.push_back({name, SlotSource::Kind::agent_output, need, &full_method(), ""});
      pieces.push_back({"", name});
      pieces.push_back({"|", ""});
    }
    turn.messages = {{"user", pieces}};
    return turn;
  }

  AgentSpec& agent(const std::string& id) {
    for (AgentSpec& made : spec.agents) {
      if (made.id == id) return made;
    }
    throw std::invalid_argument(id);
  }

  void output(const std::string& name, const std::string& placeholder) {
    spec.outputs.push_back({name, {{"", placeholder, 0}}});
  }

  /// A request for this plan against one engine.
  RunRequest request(std::shared_ptr<InferenceEngine> engine) {
    OutputGrammars grammars;
    for (PlannedTurn& turn : plan.turns) {
      turn.grammar = grammars.get(agent(turn.agent).output);
      turn.enforce = turn.grammar != nullptr && agent(turn.agent).output.enforce;
    }
    plan.spec = std::make_shared<const WorkflowSpec>(spec);
    RunRequest made;
    made.plan = std::make_shared<const Plan>(plan);
    made.engines = {{"main", engine}};
    made.tools = tools;
    made.inputs = {{"question", "why?"}};
    return made;
  }

  WorkflowSpec spec;
  Plan plan;
  std::shared_ptr<const ToolRegistry> tools = std::make_shared<const ToolRegistry>();
};

/// The agent that a prompt of PlanBuilder belongs to.
inline std::string agent_of(const std::string& prompt) {
  const std::size_t begin = prompt.find("role:") + 5;
  return prompt.substr(begin, prompt.find('|', begin) - begin);
}

}  // namespace baton::test
