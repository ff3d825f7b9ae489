// SPDX-License-Identifier: Apache-2.0
#include "sdk/record/record_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include <stop_token>
#include <utility>
#include <variant>
#include <vector>

#include <baton/errors.h>
#include <baton/preview.h>

#include "engine/base/files.h"
#include "engine/base/system/process.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;

RecordFolder::RecordFolder(const fs::path& folder, bool replace)
    : folder_(fs::absolute(folder).lexically_normal()), replace_(replace) {
  if (folder_.filename().empty()) folder_ = folder_.parent_path();  // "runs/1/" is "runs/1"
  std::error_code error;
  if (replace_ && fs::exists(folder_ / "run.json", error)) return;
  if (fs::exists(folder_, error) && !(fs::is_directory(folder_, error) && fs::is_empty(folder_, error)))
    throw InputError(fmt::format("record: the folder {} exists already; give a new one", folder_.string()));
}

void RecordFolder::write(const fs::path& aside) const {
  try {
    fs::create_directories(aside);
  } catch (const fs::filesystem_error& error) {
    throw std::runtime_error(fmt::format("cannot make the folder {}: {}", folder_.string(), error.code().message()));
  }
  for (const auto& [name, bytes] : files_) {
    try {
      write_whole(aside / name, bytes);
    } catch (const fs::filesystem_error& error) {
      throw std::runtime_error(fmt::format("cannot write {}: {}", name, error.code().message()));
    }
  }
  if (!replace_ || !fs::exists(folder_ / "run.json")) return fs::rename(aside, folder_);
  replace_by(aside);
}

void RecordFolder::replace_by(const fs::path& aside) const {
  std::vector<fs::path> names;  // what others have put next to the old record stays
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (fs::path name = entry.path().filename(); !fs::exists(aside / name)) names.push_back(std::move(name));
  }
  const fs::path old = fs::path(aside) += ".old";
  std::error_code ignored;
  std::size_t moved = 0;
  fs::rename(folder_, old);
  try {
    for (; moved < names.size(); ++moved) fs::rename(old / names[moved], aside / names[moved]);
    fs::rename(aside, folder_);
  } catch (...) {
    while (moved-- > 0) fs::rename(aside / names[moved], old / names[moved], ignored);
    fs::rename(old, folder_, ignored);
    throw;
  }
  fs::remove_all(old, ignored);  // the new record is in its place
}

void RecordFolder::commit() const {
  const fs::path aside =
      folder_.parent_path() / fmt::format(".{}.part-{}", folder_.filename().string(), process_number());
  const auto remove = [&] {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
  };
  remove();
  try {
    write(aside);
  } catch (...) {
    remove();
    throw;
  }
}

}  // namespace baton::inline v1

namespace baton::inline v1 {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr Open kAppend = Open::append | Open::no_link;

std::string dumped(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string line_of(const JournalHead& head) {
  OrderedJson json = {
      {"journal", kJournalFormat}, {"folder", fs::current_path().string()}, {"file", head.file},    {"set", head.set},
      {"models", head.models},     {"fingerprint", head.fingerprint},       {"inputs", head.inputs}};
  if (head.seed) json["seed"] = *head.seed;
  if (!head.local_time.empty()) json["local_time"] = head.local_time;
  return dumped(json);
}

std::string line_of(const AgentFinished& finished) {
  const OrderedJson event = OrderedJson::parse(to_json(Event(finished)));
  return dumped({{"turn", finished.turn}, {"tokens", finished.tokens}, {"record", event["record"]}});
}

std::string line_of(const EarlierCall& call) {
  OrderedJson json = {{"call", call.call}, {"turn", call.turn}, {"tool", call.tool}, {"arguments", call.arguments}};
  if (call.answer) json["answer"] = *call.answer;
  if (call.begun) json["begun"] = true;
  if (call.result) json["result"] = {{"ok", call.result->ok}, {"text", call.result->text}, {"code", call.result->code}};
  return dumped(json);
}

/// What an event says of a call of a model; nothing: it says nothing.
std::optional<EarlierCall> call_of(const Event& event) {
  if (const auto* asked = std::get_if<Asked>(&event); asked != nullptr && !asked->tool.empty()) {
    const std::size_t slash = asked->turn.rfind('/');
    return EarlierCall{asked->turn.substr(0, slash), std::stoi(asked->turn.substr(slash + 1)), asked->tool,
                       asked->arguments};
  }
  if (const auto* decided = std::get_if<CallDecided>(&event))
    return EarlierCall{decided->turn, decided->call, decided->tool, decided->arguments, decided->answer};
  if (const auto* begun = std::get_if<CallBegun>(&event))
    return EarlierCall{begun->turn, begun->call, begun->tool, begun->arguments, {}, true};
  const auto* called = std::get_if<ToolCalled>(&event);
  if (called == nullptr || called->call == 0) return std::nullopt;
  return EarlierCall{called->turn,
                     called->call,
                     called->tool,
                     called->arguments,
                     {},
                     true,
                     ToolResult{called->ok, called->result, called->code}};
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

RunJournal::RunJournal(const fs::path& folder, const JournalHead& head, const std::optional<Begun>& resumed,
                       std::function<void(const std::string& message)> on_warning)
    : path_(with_parent(journal_beside(folder))), on_warning_(std::move(on_warning)) {
  const std::string first = line_of(head);
  lock(resumed.has_value());
  if (!resumed) {
    file_ = open_file(path_, kAppend | Open::create | Open::only_new);
    if (!file_ && errno == EEXIST) {
      throw InputError(
          fmt::format("record: there is the journal of a run that was killed, {}; 'baton resume {}' goes on with it, "
                      "or delete it",
                      path_.string(), folder.string()));
    }
    write(first);
    return;
  }
  std::string all = first;  // whole under another name first: it may be the only copy of these turns
  for (const AgentFinished& one : resumed->turns) {
    all += line_of(one);
    known_.insert(one.turn);
  }
  for (const EarlierCall& call : resumed->calls) all += line_of(call);
  has_calls_ = !resumed->calls.empty();
  try {
    write_whole(path_, all);
  } catch (const fs::filesystem_error& error) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_.string(), error.code().message()));
  }
  text_ = all;
  good_ = all.size();
  file_ = open_file(path_, kAppend);
  if (!file_) throw std::runtime_error(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
}

/// A file of its own, since the journal of a run that goes on is replaced. The system gives the lock back when the
/// process ends, however that is.
void RunJournal::lock(bool resumed) {
  const auto busy = [this] {
    throw InputError(fmt::format("record: {} is being written by another run", path_.string()));
  };
  try {
    lock_.emplace(fs::path(path_) += ".lock", std::stop_token(), busy, true);
  } catch (const fs::filesystem_error& error) {
    if (resumed) throw std::runtime_error(fmt::format("cannot write {}: {}", path_.string(), error.code().message()));
  }
}

void RunJournal::add(const AgentFinished& finished) {
  const TurnState state = finished.record.state;
  if ((state != TurnState::ok && state != TurnState::failed) || known_.count(finished.turn) != 0) return;
  known_.insert(finished.turn);
  write(line_of(finished));
}

void RunJournal::add(const EarlierCall& call) {
  has_calls_ = true;
  write(line_of(call));
}

void RunJournal::write(const std::string& line) {
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
    if (file_) remove_file();
  } else if (!set_size(file_, static_cast<std::int64_t>(good_))) {  // a torn line is left out by who reads it
  }
  if (!on_warning_) return;
  on_warning_(fmt::format("cannot write {}: {}; turns from here on would be run again if this run were killed",
                          path_.string(), std::strerror(error)));
}

void RunJournal::remove() {
  remove_file();
  lock_.reset();
}

void RunJournal::remove_file() const {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace baton::inline v1

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
  head.local_time = options.local_time;
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
      journal_(
          options.record, with_values(std::move(head), options),
          options.record_resumed ? std::optional(RunJournal::Begun{options.finished, options.calls}) : std::nullopt,
          std::move(on_warning)) {
  for (const AgentFinished& one : options.finished) {
    for (const ToolUse& use : one.record.tools) add_result(turn_name(one.record), use.result);
    resumed_.insert(turn_name(one.record));
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
  if (const std::optional<EarlierCall> call = call_of(event)) journal_.add(*call);
  lines_ += to_json(event, since.count()) + "\n";
}

void RunRecorder::add_prompt(const std::string& turn, std::string text, std::vector<std::int32_t> ids) {
  prompts_[turn] = {std::move(text), std::move(ids)};
}

void RunRecorder::write(RunRecord& record) noexcept {
  over_ = true;
  try {
    folder_.add("run.json", record.to_json() + "\n");
    folder_.add("events.ndjson", std::move(lines_));
    folder_.add("graph.json", workflow_.graph("json"));
    folder_.add(kJournalName, journal_.text());
    if (!resumed_.empty()) {  // what turns of an earlier process read is rendered again
      for (const auto& turn : engine_.preview(workflow_, {inputs_, {}, &record, tool_results_}).turns) {
        if (turn.complete && resumed_.contains(turn.turn)) folder_.add("prompts/" + turn.turn + ".txt", turn.text());
      }
    }
    for (auto& [turn, prompt] : prompts_) {
      if (!prompt.ids.empty())
        folder_.add("prompts/" + turn + ".ids.json", fmt::format("[{}]\n", fmt::join(prompt.ids, ",")));
      folder_.add("prompts/" + turn + ".txt", std::move(prompt.text));
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
