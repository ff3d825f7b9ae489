// SPDX-License-Identifier: Apache-2.0
#include "sdk/record/run_recorder.h"

#include <fmt/format.h>

#include <variant>

#include <baton/preview.h>

namespace baton::inline v1 {
namespace {

std::string turn_name(const std::string& agent, int round) {
  return round > 1 ? fmt::format("{}#{}", agent, round) : agent;
}

std::string turn_name(const AgentRecord& record) {
  return record.turn.empty() ? turn_name(record.agent, record.round) : record.turn;
}

JournalHead with_values(JournalHead head, const RunOptions& options) {
  head.inputs = options.inputs;
  head.seed = options.seed;
  return head;
}

}  // namespace

RunRecorder::RunRecorder(const Engine& engine, const Workflow& workflow, const RunOptions& options, JournalHead head,
                         std::function<void(const std::string& message)> on_warning)
    : engine_(engine),
      workflow_(workflow),
      path_(std::filesystem::absolute(options.record)),
      inputs_(options.inputs),
      folder_(options.record, options.record_resumed),
      journal_(options.record, with_values(std::move(head), options),
               options.record_resumed ? &options.finished : nullptr, std::move(on_warning)) {
  for (const AgentFinished& one : options.finished) {
    for (const ToolUse& use : one.record.tools) add_result(turn_name(one.record), use.result);
    if (!options.record_resumed) journal_.add(one);
  }
}

RunRecorder::~RunRecorder() {
  if (!over_ && !journal_.has_turns()) journal_.remove();
}

void RunRecorder::add_result(const std::string& turn, const std::string& text) {
  std::string& all = tool_results_[turn];
  all += (all.empty() ? "" : "\n") + text;
}

void RunRecorder::add(const Event& event) {
  if (std::holds_alternative<RunStarted>(event)) begin_ = Clock::now();
  // Before the journal, whose write waits for the disk: the turn ended without it.
  const std::chrono::duration<double, std::milli> since = Clock::now() - begin_;
  // A turn that the host hears of is in the journal.
  if (const auto* finished = std::get_if<AgentFinished>(&event)) journal_.add(*finished);
  lines_ += to_json(event, since.count()) + "\n";
  if (const auto* tool = std::get_if<ToolCalled>(&event)) add_result(tool->turn, tool->result);
}

void RunRecorder::write(RunRecord& record) noexcept {
  over_ = true;
  try {
    folder_.add("run.json", record.to_json() + "\n");
    folder_.add("events.ndjson", std::move(lines_));
    folder_.add("graph.json", workflow_.graph("json"));
    folder_.add(kJournalName, journal_.text());
    for (const auto& turn : engine_.preview(workflow_, {inputs_, {}, &record, tool_results_}).turns) {
      if (turn.complete) folder_.add("prompts/" + turn.turn + ".txt", turn.text());
    }
    folder_.commit();
    journal_.remove();
  } catch (const std::exception& error) {
    record.record_error = error.what();
    if (journal_.is_whole()) record.record_error += fmt::format("; 'baton resume {}' writes it later", path_.string());
  }
}

void RunRecorder::drop() noexcept {
  over_ = true;
  journal_.remove();
}

}  // namespace baton::inline v1
