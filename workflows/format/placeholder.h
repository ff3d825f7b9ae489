// SPDX-License-Identifier: Apache-2.0
// The names of placeholders: declared inputs, agent_<id>_current, agent_<id>_history_<t>, the same of
// agent_<id>_thinking, condition_<id> and, by a step of a graph, step_<id>, agent_<id>_answer,
// agent_<id>_probabilities, and members of the latter two: agent_<id>_answer.field.0.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "workflows/format/spec.h"

namespace baton {

struct Placeholder {
  enum class Kind : std::uint8_t { input, agent, condition, answer, probabilities, thinking };
  Kind kind = Kind::input;
  std::string id;                      // the agent's
  int history = 0;                     // rounds back; 0: current
  std::vector<std::string> path = {};  // members of an answer, or the text whose probability it is
  std::string step = {};               // of `agent`: the step whose output it is; empty: the agent's last one

  bool has_members() const { return kind == Kind::answer || kind == Kind::probabilities; }
};

/// An id may itself end in "_current": the last suffix of the name counts. Empty when the name has neither form, or
/// its number is not one of 1 to 1000; a name of a step is none of these forms. A name of thinking is read as that of
/// an agent whose id ends in "_thinking": only a workflow can tell.
std::optional<Placeholder> parse_placeholder(std::string_view name);

/// What stands behind the id of an agent in the name of its thinking.
inline constexpr std::string_view kThinkingSuffix = "_thinking";

std::string placeholder_name(const Placeholder& placeholder);

/// The placeholder of a name in this workflow; empty when there is no such input or agent.
std::optional<Placeholder> find_placeholder(const WorkflowSpec& spec, const std::string& name);

/// The same for many names of one workflow, whose inputs and agents do not change in the meantime.
class PlaceholderNames {
 public:
  explicit PlaceholderNames(const WorkflowSpec& spec);
  std::optional<Placeholder> find(const std::string& name) const;

 private:
  std::unordered_set<std::string> inputs_, agents_;
  std::unordered_map<std::string, std::string> steps_;  // their agents
};

/// The name under which conditions know the number of the round, from 1; an input of this name hides it.
inline constexpr std::string_view kRoundName = "round";

/// The placeholders of `retry.feedback`: why the output failed its check, and the output.
inline constexpr std::string_view kErrorPlaceholder = "error";
inline constexpr std::string_view kOutputPlaceholder = "output";

/// Reports an unknown placeholder, with a suggestion. `owner` begins the message ("agent 'judge'").
void report_unknown_placeholder(const WorkflowSpec& spec, const std::string& owner, const std::string& name,
                                const SourceLocation& where, Diagnostics& diagnostics);

class Schema;

/// Checks the placeholders for answers and probabilities of one workflow, whose agents do not change in the meantime.
class AnswerChecker {
 public:
  /// `spec` must outlive this.
  explicit AnswerChecker(const WorkflowSpec& spec) : spec_(spec) {}

  /// Reports an answer or probabilities that the agent does not have, and a member that its schema excludes or that is
  /// none of its choices. Ignores other placeholders. `owner` begins the message ("agent 'judge'").
  void check(const Placeholder& placeholder, const std::string& owner, const SourceLocation& where,
             Diagnostics& diagnostics);

 private:
  const Schema* schema_of(const AgentSpec& agent);
  std::string problem_of(const Placeholder& placeholder, const AgentSpec& agent);

  const WorkflowSpec& spec_;
  std::map<std::string, std::shared_ptr<const Schema>> schemas_;  // by agent; each is read once
};

/// The texts of placeholders for `answer`, or for probabilities as a JSON object, by name. A string member is its text,
/// any other member is JSON, numbers as they were written, and an empty path means the whole answer. Members that do
/// not exist are left out, as are all members of an answer that is not JSON.
std::map<std::string, std::string> answer_texts(const std::string& answer,
                                                const std::map<std::string, Placeholder>& names);

}  // namespace baton
