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

#include "sdk/cli/console/file_descriptor.h"
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

/// Writes the journal next to the folder. Turns that end badly are not in it: they are run again.
class Journal {
 public:
  /// Throws Failure, also when there is a journal already; with `replace` that is overwritten.
  Journal(const std::filesystem::path& folder, const JournalStart& start, bool replace);

  /// What cannot be written is told once, and the run goes on without a journal on disk.
  void add(const AgentFinished& finished);

  bool is_whole() const { return !broken_; }
  /// All of it, for the folder of the record.
  const std::string& text() const { return text_; }
  /// The record is written: the journal next to it goes.
  void remove() const;

 private:
  void write(const std::string& line);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::string text_;
  bool broken_ = false;
};

}  // namespace baton::cli
