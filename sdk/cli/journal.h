// SPDX-License-Identifier: Apache-2.0
// The journal of a recorded run: how it was started, and each turn that has ended, on disk when it has ended. A run
// that was killed goes on from it (`baton resume`), and one that has ended is compared with it (`baton replay`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <baton/baton.h>

#include "engine/base/system/file.h"
#include "sdk/cli/console/options.h"

namespace baton::cli {

/// The name of the journal in the folder of a record; while the run goes on it lies next to the folder.
inline constexpr const char* kJournalName = "journal.ndjson";
std::filesystem::path journal_beside(const std::filesystem::path& folder);

/// How a run was started.
struct JournalStart {
  std::string folder;  // the current folder, from which paths are named
  WorkflowArguments workflow;
  std::string fingerprint;  // of the workflow
  std::map<std::string, std::string> inputs;
  std::optional<std::uint64_t> seed;
};

struct JournalContent {
  JournalStart start;
  std::vector<AgentFinished> finished;
};

/// Of a run that goes on: reads the journal next to the folder of its record, else that in the folder. A last line that
/// is not whole is left out. Throws Failure.
JournalContent read_journal(const std::filesystem::path& folder);

/// Writes the journal next to the folder, and holds a lock on it. Turns that were skipped or cancelled are not in it.
class Journal {
 public:
  /// `resumed`: the turns that a journal or a record has already; null: a new run. Throws Failure when there is a
  /// journal of another run, when another process writes it, and when that of a resumed run cannot be written anew.
  Journal(const std::filesystem::path& folder, const JournalStart& start, const std::vector<AgentFinished>* resumed);

  /// What cannot be written is told once; the journal on disk keeps what it has.
  void add(const AgentFinished& finished);

  bool is_whole() const { return !broken_; }
  bool has_turns() const { return !known_.empty(); }
  /// All of it, for the folder of the record.
  const std::string& text() const { return text_; }
  /// The record is written, or nothing was run: the journal next to it goes.
  void remove() const;

 private:
  void lock();
  [[noreturn]] void going_on() const;
  void write(const std::string& line);

  std::filesystem::path path_;
  UniqueFd file_;
  std::string text_;
  std::set<int> known_;   // turns
  std::size_t good_ = 0;  // bytes on disk that are whole lines
  bool broken_ = false;
};

}  // namespace baton::cli
