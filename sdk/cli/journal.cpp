// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "sdk/console/terminal.h"
#include "sdk/record/record_folder.h"
#include "sdk/report/data.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxJournalBytes = 256 << 20;

/// Texts of a list.
std::vector<std::string> list_of(const nlohmann::json& json, const char* name, const RecordFields& fields) {
  std::vector<std::string> texts;
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) fields.fail(name, "a list of texts");
  for (const auto& one : *found) {
    if (!one.is_string()) fields.fail(name, "a list of texts");
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

JournalStart start_of(const nlohmann::json& json, const RecordFields& fields) {
  if (fields.count("journal") != kJournalFormat) fields.fail("journal", fmt::format("{}", kJournalFormat));
  JournalStart start;
  start.folder = fields.text("folder");
  start.workflow.file = fields.text("file");
  if (start.workflow.file.empty())
    fields.fail("file",
                "a workflow file; the program that began this run gave it as a text, so that it alone can go on");
  start.workflow.set = list_of(json, "set", fields);
  start.workflow.models = list_of(json, "models", fields);
  if (const auto relay = json.find("relay"); relay != json.end()) start.workflow.relay = fields.text("relay");  // old
  start.fingerprint = fields.text("fingerprint");
  for (auto& [name, value] : fields.texts("inputs")) start.inputs.emplace(name, value);
  if (!fields.is_null("seed")) start.seed = fields.unsigned_number("seed");
  start.local_time = fields.text("local_time", "");
  return start;
}

AgentFinished finished_of(const nlohmann::json& json, const RecordFields& fields) {
  AgentFinished finished;
  const std::int64_t turn = fields.count("turn");
  if (turn > 1'000'000) fields.fail("turn", "the index of a turn");
  finished.turn = static_cast<int>(turn);
  const auto tokens = json.find("tokens");
  if (tokens == json.end() || !tokens->is_array()) fields.fail("tokens", "a list of token ids");
  for (const auto& id : *tokens) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > (1 << 30))
      fields.fail("tokens", "a list of token ids");
    finished.tokens.push_back(id.get<std::int32_t>());
  }
  finished.record = agent_record(fields.object("record"));
  return finished;
}

/// Adds what a line says of a call to what the lines before it said.
void add_call(const nlohmann::json& json, const RecordFields& fields, std::vector<EarlierCall>& calls) {
  const std::int64_t number = fields.count("call");
  if (number < 1 || number > 1'000'000) fields.fail("call", "the number of a call, from 1");
  EarlierCall call{fields.turn_id("turn"), static_cast<int>(number), fields.text("tool"), fields.text("arguments")};
  const bool returned = json.contains("result");  // with the arguments that the host may have changed
  const auto known = std::find_if(calls.begin(), calls.end(), [&](const EarlierCall& one) {
    return one.turn == call.turn && one.call == call.call && one.tool == call.tool &&
           (returned ? one.begun && !one.result : one.arguments == call.arguments);
  });
  EarlierCall& one = known == calls.end() ? calls.emplace_back(std::move(call)) : *known;
  if (json.contains("answer")) one.answer = fields.text("answer");
  one.begun = one.begun || fields.truth("begun", false);
  if (const std::optional<RecordFields> result = fields.object_if_there("result"))
    one.result = ToolResult{result->truth("ok"), result->text("text"), result->text("code")};
}

}  // namespace

JournalContent read_journal(const fs::path& folder) {
  const fs::path path = journal_beside(folder);
  std::optional<std::string> bytes = RecordFiles(path.parent_path()).whole(path.filename().string(), kMaxJournalBytes);
  std::string where = path.string();
  if (!bytes) {
    const RecordFiles files(folder);
    bytes = files.whole(kJournalName, kMaxJournalBytes);
    where = files.path_of(kJournalName);
  }
  if (!bytes) {
    throw Failure(kInvalidFile, fmt::format("{}: expected a folder that 'baton run --record' wrote, or was to write: "
                                            "found neither {} nor {}",
                                            folder.string(), path.string(), where));
  }
  JournalContent content;
  std::size_t number = 0;
  for (std::size_t at = 0, end = 0; (end = bytes->find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string place = fmt::format("{}:{}", where, ++number);
    const JsonDocument json = RecordFields::parse(std::string_view(*bytes).substr(at, end - at), place);
    const RecordFields fields(*json, place, "");
    if (number == 1)
      content.start = start_of(*json, fields);
    else if (json->contains("call"))
      add_call(*json, fields, content.calls);
    else
      content.finished.push_back(finished_of(*json, fields));
  }
  if (number == 0) throw Failure(kInvalidFile, where + ": the journal is empty");
  content.file = std::move(where);
  return content;
}

void check_journal(const JournalContent& journal, const std::vector<TurnInfo>& turns) {
  std::set<int> known;
  for (std::size_t i = 0; i < journal.finished.size(); ++i) {
    const AgentFinished& one = journal.finished[i];
    const auto fail = [&](const std::string& text) {
      throw Failure(kInvalidFile, fmt::format("{}:{}: turn {}: {}", journal.file, i + 2, one.turn, text));
    };
    if (one.turn < 0 || static_cast<std::size_t>(one.turn) >= turns.size())
      fail(fmt::format("expected the index of one of the workflow's {} turns", turns.size()));
    const TurnInfo& turn = turns[static_cast<std::size_t>(one.turn)];
    if (one.record.agent != turn.agent || one.record.round != turn.round) {
      fail(fmt::format("expected agent '{}' in round {}, found '{}' in round {}", turn.agent, turn.round,
                       one.record.agent, one.record.round));
    }
    if (one.record.state != TurnState::ok && one.record.state != TurnState::failed)
      fail(fmt::format("expected the state ok or failed, found {}", name_of(one.record.state)));
    if (!known.insert(one.turn).second) fail("it stands there twice");
  }
}

namespace {

/// Paths in a journal are those of the folder in which the run was started.
void enter(const JournalStart& start) {
  std::error_code error;
  fs::current_path(start.folder, error);
  if (error)
    throw Failure(kUsage,
                  fmt::format("the run was started in {}: {}", printable(start.folder, Lines::fold), error.message()));
}

void must_be_the_same(const JournalStart& start, const Workflow& workflow) {
  if (start.fingerprint == workflow.fingerprint()) return;
  throw Failure(kInvalidFile,
                fmt::format("{} has changed since the run began, or an environment variable that it names; "
                            "a run goes on, and is compared, with the same workflow only",
                            start.workflow.file));
}

}  // namespace

Restarted restart(JournalContent journal, EngineArguments engine) {
  if (!engine.learned.empty()) engine.learned = fs::absolute(engine.learned).string();  // from this command line
  enter(journal.start);
  Workflow workflow = journal.start.workflow.load();
  must_be_the_same(journal.start, workflow);
  check_journal(journal, workflow.turns());
  return {std::move(journal), std::move(engine), std::move(workflow)};
}

}  // namespace baton::cli
