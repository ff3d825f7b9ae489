// SPDX-License-Identifier: Apache-2.0
// Answers as values: agent_<id>_answer.field.0, and probabilities of answers: agent_<id>_probabilities.yes.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "workflows/format/placeholder.h"

namespace baton {

class JsonDocument;

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
  const JsonDocument& schema_of(const AgentSpec& agent);
  std::string problem_of(const Placeholder& placeholder, const AgentSpec& agent);

  const WorkflowSpec& spec_;
  std::map<std::string, std::shared_ptr<const JsonDocument>> schemas_;  // by agent; each is parsed once
};

/// The texts of placeholders for `answer`, or for probabilities as a JSON object, by name. A string member is its text,
/// any other member is JSON, numbers as they were written, and an empty path means the whole answer. Members that do
/// not exist are left out, as are all members of an answer that is not JSON.
std::map<std::string, std::string> answer_texts(const std::string& answer,
                                                const std::map<std::string, Placeholder>& names);

}  // namespace baton
