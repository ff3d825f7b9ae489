// SPDX-License-Identifier: Apache-2.0
// The turns of a workflow's expanded graph, as Workflow::turns() returns them.
#pragma once

#include <string>
#include <vector>

#include <baton/workflow.h>

namespace baton::inline v1 {

/// A placeholder of a turn's prompt and what fills it.
struct SlotInfo {
  enum class Source {
    input,
    agent_output,
    agent_answer,
    tool_result,
    empty,
    agent_thinking
  };  // empty: a round before the first
  std::string name;
  Source source = Source::empty;
  int turn = -1;       // for outputs, answers and results: index into Workflow::turns()
  std::string method;  // how its KV will be handed over, as far as is known before a run
  std::string reason;
};

/// One turn of one agent in the expanded graph.
struct TurnInfo {
  std::string id;  // "solver", in later rounds "solver#2"
  std::string agent;
  std::string role;
  int round = 1;
  std::vector<int> needs;  // turns that must finish first: indices, each smaller than this turn's
  std::vector<SlotInfo> slots;
  std::vector<std::string> tools;  // that run before the prompt
  std::vector<std::string> calls;  // tools that the model may call; "mcp: NAME" for those of a server
  bool tools_answer = false;       // the output is what they return, not what a model writes
  std::string model;
  int max_tokens = 0;
  bool decides = false;     // the `then` agent
  bool asks = false;        // it waits for an answer of the host's (`ask`)
  bool may_fail = false;    // its failure does not end the run (`on_error`)
  bool answers = false;     // its agent's tokens, as they come, are the text of the workflow's only output
  bool in_outputs = false;  // an output of the workflow names its agent
  std::string summaries{};  // who writes summaries of results that do not fit: "agent 'brief', model 'small'"; empty:
                            // nobody, or its own model
  std::string unread{};     // why nothing reads its output, though it looks as if it were read; otherwise empty
  std::string order;        // of a prompt with `order: free`: the order that was chosen and its gain; otherwise empty
};

}  // namespace baton::inline v1
