// SPDX-License-Identifier: Apache-2.0
#include "sdk/record/run_journal.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stop_token>

#include <baton/errors.h>

#include "engine/base/atomic_file.h"

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
  return dumped(json);
}

std::string line_of(const AgentFinished& finished) {
  const OrderedJson event = OrderedJson::parse(to_json(Event(finished)));
  return dumped({{"turn", finished.turn}, {"tokens", finished.tokens}, {"record", event["record"]}});
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

RunJournal::RunJournal(const fs::path& folder, const JournalHead& head, const std::vector<AgentFinished>* resumed,
                       std::function<void(const std::string& message)> on_warning)
    : path_(with_parent(journal_beside(folder))), on_warning_(std::move(on_warning)) {
  const std::string first = line_of(head);
  lock(resumed != nullptr);
  if (resumed == nullptr) {
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
  for (const AgentFinished& one : *resumed) {
    all += line_of(one);
    known_.insert(one.turn);
  }
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
