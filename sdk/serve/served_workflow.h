// SPDX-License-Identifier: Apache-2.0
// The workflows of a server: each is a model of OpenAI's interface, with the inputs that messages fill.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <baton/turns.h>
#include <baton/workflow.h>

namespace baton::serve {

struct ServedWorkflow {
  std::string name;  // of the model
  Workflow workflow;
  std::string message;  // the input that the last message of the user fills; empty: `history` holds it as well
  std::string history;  // the input of type messages that the messages before it fill; empty: they are not read
  std::map<std::string, std::string> inputs{};  // values of other inputs, which a request may replace
  int answer = -1;  // the turn whose tokens are the answer as they come; -1: the answer comes whole, at the end
};

/// Chooses the inputs. `message` names that of the message; empty: it is the only text input that is required and has
/// no value in `inputs`, else the only text input. Throws InputError where that is ambiguous, for unknown inputs, and
/// for a workflow with steps that ask, since nobody is there to answer.
ServedWorkflow serve_workflow(std::string name, Workflow workflow, const std::string& message = {},
                              std::map<std::string, std::string> inputs = {});

/// In the order in which they were added. Immutable while a server uses them.
class ServedWorkflows {
 public:
  /// Throws InputError for a name that is taken, or no model's name (letters, digits, '.', '_', '-'; at most 128).
  void add(ServedWorkflow workflow);
  /// Null: there is none of that name.
  const ServedWorkflow* find(std::string_view name) const;
  const std::vector<ServedWorkflow>& all() const { return workflows_; }
  /// "a, b", for messages.
  std::string names() const;

 private:
  std::vector<ServedWorkflow> workflows_;
};

/// What GET /v1/models says of a workflow; `created`: seconds since 1970.
std::string model_json(const ServedWorkflow& workflow, long long created);
std::string models_json(const ServedWorkflows& workflows, long long created);

}  // namespace baton::serve
