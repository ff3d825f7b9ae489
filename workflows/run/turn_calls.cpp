// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "workflows/run/turn_attempt.h"

namespace baton {

std::optional<CallsInput> TurnCalls::read(const GenerationResult& result, const PlannedTurn& turn,
                                          const std::shared_ptr<InferenceEngine>& engine, const ToolFormat& format,
                                          const ToolRegistry& tools, const std::stop_token& stop) const {
  CallsInput input;
  input.left = turn.calls->limits().max_calls - calls_;
  if (input.left <= 0) return std::nullopt;
  // A marker may be a special token, which is not in the text.
  const Tokenizer& tokenizer = *engine->text().tokenizer;
  input.calls =
      calls_in(format.enforceable ? result.text : tokenizer.decode(result.tokens, false), format, *turn.calls);
  if (input.calls.empty()) return std::nullopt;

  input.turn = &turn;
  input.engine = engine;
  input.format = format;
  input.stop = stop;
  for (const ModelCall& call : input.calls) {
    const auto made = made_.find({call.tool, call.arguments});
    const bool again = made != made_.end() && !turn.calls->limits().repeat;
    input.known.push_back(again ? std::optional(made->second) : std::nullopt);
    ToolInput& tool = input.tools.emplace_back();
    tool.name = call.tool;
    const CallableTool* known = turn.calls->find(call.tool);
    if (known == nullptr) continue;  // the call has a problem
    tool.tool = known->own ? known->own.get() : tools.find(call.tool);
    tool.call.options = known->options;
    tool.call.timeout = turn.calls->limits().timeout;
    tool.call.arguments = call.arguments;
    tool.call.stop = input.stop;
  }
  return input;
}

void TurnCalls::add(const GenerationResult& result, const CallsInput& calls, std::vector<PromptPart> prompt,
                    const AgentRecord& record) {
  ++generations_;
  calls_ += static_cast<int>(calls.calls.size());
  if (calls.goes_in_circles()) calls_ = calls.turn->calls->limits().max_calls;
  record_ = record;
  record_.tools.clear();
  context_ = result.context;
  prompt_ = std::move(prompt);
  if (!result.tokens.empty()) prompt_.push_back({{}, result.tokens});
}

void TurnCalls::add_results(PreparedTurn called) {
  for (const ToolOutcome& tool : called.tools) made_.try_emplace({tool.tool, tool.arguments}, tool.result);
  for (PromptPart& part : called.prompt) prompt_.push_back(std::move(part));
  constraint_ = std::move(called.constraint);
}

}  // namespace baton
