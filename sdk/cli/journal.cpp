// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/journal.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/whole_file.h"
#include "sdk/report/data.h"
#include "sdk/report/fields.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxJournalBytes = 256 << 20;
constexpr int kFormat = 1;
constexpr Open kAppend = Open::append | Open::no_link;

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::string line_of(const JournalStart& start) {
  Json json = {{"journal", kFormat},
               {"folder", start.folder},
               {"file", start.workflow.file},
               {"set", start.workflow.set},
               {"models", start.workflow.models},
               {"relay", start.workflow.relay},
               {"fingerprint", start.fingerprint},
               {"inputs", start.inputs}};
  if (start.seed) json["seed"] = *start.seed;
  return dumped(json);
}

std::string line_of(const AgentFinished& finished) {
  const Json event = Json::parse(to_json(Event(finished)));
  return dumped({{"turn", finished.turn}, {"tokens", finished.tokens}, {"record", event["record"]}});
}

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
  if (fields.count("journal") != kFormat) fields.fail("journal", fmt::format("{}", kFormat));
  JournalStart start;
  start.folder = fields.text("folder");
  start.workflow.file = fields.text("file");
  start.workflow.set = list_of(json, "set", fields);
  start.workflow.models = list_of(json, "models", fields);
  start.workflow.relay = fields.text("relay");
  start.fingerprint = fields.text("fingerprint");
  for (auto& [name, value] : fields.texts("inputs")) start.inputs.emplace(name, value);
  if (!fields.is_null("seed")) start.seed = fields.unsigned_number("seed");
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

fs::path with_parent(fs::path path) {
  std::error_code ignored;  // opening the journal says what is wrong
  fs::create_directories(path.parent_path(), ignored);
  return path;
}

}  // namespace

fs::path journal_beside(const fs::path& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();  // "runs/1/" is "runs/1"
  return path += ".journal";
}

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
    else
      content.finished.push_back(finished_of(*json, fields));
  }
  if (number == 0) throw Failure(kInvalidFile, where + ": the journal is empty");
  return content;
}

Journal::Journal(const fs::path& folder, const JournalStart& start, const std::vector<AgentFinished>* resumed)
    : path_(with_parent(journal_beside(folder))) {
  const std::string first = line_of(start);
  if (resumed == nullptr) {
    file_ = open_file(path_, kAppend | Open::create | Open::only_new);
    if (!file_ && errno == EEXIST) {
      throw Failure(kUsage, fmt::format("--record {}: there is the journal of a run that goes on or was killed, {}; "
                                        "'baton resume {}' goes on with it, or delete it",
                                        folder.string(), path_.string(), folder.string()));
    }
    if (file_) lock();
    write(first);
    return;
  }
  {
    const UniqueFd before = open_file(path_, Open::read | Open::no_link);
    if (before && try_lock(before) != FileLockState::locked) going_on();
  }
  std::string all = first;  // whole under another name first: it may be the only copy of these turns
  for (const AgentFinished& one : *resumed) {
    all += line_of(one);
    known_.insert(one.turn);
  }
  write_whole_file(path_, all);
  text_ = all;
  good_ = all.size();
  file_ = open_file(path_, kAppend);
  if (!file_) throw Failure(kRunFailed, fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  lock();
}

/// The system gives it back when the process ends, however that is.
void Journal::lock() {
  if (try_lock(file_) != FileLockState::locked) going_on();
}

void Journal::going_on() const {
  throw Failure(kUsage, fmt::format("{}: another process goes on with this run", path_.string()));
}

void Journal::add(const AgentFinished& finished) {
  const TurnState state = finished.record.state;
  if ((state != TurnState::ok && state != TurnState::failed) || known_.count(finished.turn) != 0) return;
  known_.insert(finished.turn);
  write(line_of(finished));
}

void Journal::write(const std::string& line) {
  text_ += line;
  if (broken_) return;
  const bool written = file_ && write_all(file_, line) && flush_to_disk(file_);
  const int error = errno;
  if (written) {
    good_ += line.size();
    return;
  }
  broken_ = true;
  if (good_ == 0) {
    if (file_) remove();
  } else if (!set_size(file_, static_cast<std::int64_t>(good_))) {  // a torn line is left out by who reads it
  }
  note(fmt::format("baton: cannot write {}: {}; turns from here on would be run again if this run were killed\n",
                   path_.string(), std::strerror(error)));
}

void Journal::remove() const {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace baton::cli
