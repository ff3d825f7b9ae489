// SPDX-License-Identifier: Apache-2.0
// The view of a run in progress on stderr.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include <baton/baton.h>

namespace baton::cli {

class View {
 public:
  virtual ~View() = default;
  /// Called in order by the run's thread.
  virtual void on_event(const Event& event) = 0;
  /// Erases the view; nothing is drawn afterwards. Any thread, any number of times.
  virtual void close() {}
};

/// One line per agent, drawn in place at most ten times a second, in a terminal that can move its cursor.
std::unique_ptr<View> make_live_view(const Workflow& workflow);

/// A line as each agent starts and finishes.
std::unique_ptr<View> make_plain_view(bool verbose);

/// What a run answers, with names: its outputs, or without any what the last turn said, whose name is empty.
NamedTexts results_of(const RunRecord& record);

/// After the run: each agent's text, but for those that are shown `below` as results of the run.
std::string answers_text(const RunRecord& record, const NamedTexts& below);
/// A table of tokens, times and KV, as wide as stderr's terminal.
std::string summary_table(const RunRecord& record);

/// The last turn that succeeded, which a workflow without outputs answers with; null: there is none.
const AgentRecord* last_said(const RunRecord& record);

/// Of an agent that chose: "yes 91.3 %, no 8.7 %", the most probable first; empty for others.
std::string probabilities_text(const AgentRecord& agent);

/// "analyst", in later rounds "analyst#2".
std::string turn_name(const std::string& agent, int round);
/// The turn's id; of a record of an older version, the name above.
std::string turn_name(const AgentRecord& agent);

// Steps that ask (`ask`), answered by the person at the terminal.

/// True when somebody can be asked: standard input and standard error are terminals.
bool can_ask();

/// Shows the question and reads a line, again if the answer is not one of the choices. Nothing: the input has ended,
/// or a stop was requested.
std::optional<std::string> ask_person(const Asked& asked, const std::stop_token& stop);

/// The question as text, with its choices.
std::string question_text(const Asked& asked);

}  // namespace baton::cli
