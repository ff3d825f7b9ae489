// SPDX-License-Identifier: Apache-2.0
// Records a run as RunOptions::record asks for it (docs/cli.md): first its journal, how it was started and each turn
// that has ended, on disk when it has ended; then the folder, which appears whole or not at all. A run that was killed
// goes on from its journal, and one that has ended is compared with it; sdk/cli/journal.h reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <baton/engine.h>
#include <baton/event.h>

#include "engine/base/clock.h"
#include "engine/base/files.h"
#include "engine/base/system/file.h"

namespace baton::inline v1 {

class RecordFolder {
 public:
  /// Throws InputError when `folder` exists and is not empty, unless it is a record that is to be replaced.
  explicit RecordFolder(const std::filesystem::path& folder, bool replace = false);

  /// `name` may be in a sub-folder.
  void add(const std::string& name, std::string bytes) { files_[name] = std::move(bytes); }

  /// Writes everything into a temporary folder next to the final one and renames it. Throws std::runtime_error, and
  /// then leaves nothing behind; a record that was to be replaced is as it was.
  void commit() const;

 private:
  void write(const std::filesystem::path& aside) const;
  void replace_by(const std::filesystem::path& aside) const;

  std::filesystem::path folder_;
  bool replace_;
  std::map<std::string, std::string> files_;
};

}  // namespace baton::inline v1

namespace baton::inline v1 {

/// The name of the journal in the folder of a record; while the run goes on it lies next to the folder.
inline constexpr const char* kJournalName = "journal.ndjson";
inline constexpr int kJournalFormat = 1;  // the number in its first line

/// Where the journal lies while the run goes on; afterwards it is in the folder of the record.
std::filesystem::path journal_beside(const std::filesystem::path& folder);

/// How a run was started; paths are as seen from the current folder.
struct JournalHead {
  std::string file;                 // the workflow's file; empty: it was a text
  std::vector<std::string> set;     // "a.b=value"
  std::vector<std::string> models;  // "NAME=PATH", or "PATH" in place of the default model
  std::string fingerprint;          // the workflow's
  std::map<std::string, std::string> inputs;
  std::optional<std::uint64_t> seed;
  std::string local_time;  // RunOptions::local_time
};

/// Writes the journal next to the folder, and holds a lock: the file DIR.journal.lock, which ends with it. Turns that
/// were skipped or cancelled are not in it.
class RunJournal {
 public:
  /// What a journal has of a run that goes on.
  struct Begun {
    const std::vector<AgentFinished>& turns;
    const std::vector<EarlierCall>& calls;
  };
  /// `resumed`: what a journal or a record has already; nothing: a new run. Throws InputError when there is a
  /// journal of another run and when another run is writing, std::runtime_error when that of a resumed run cannot be
  /// written anew. `on_warning` may be empty.
  RunJournal(const std::filesystem::path& folder, const JournalHead& head, const std::optional<Begun>& resumed,
             std::function<void(const std::string& message)> on_warning);

  /// A write that fails is reported once; the journal on disk keeps what it has.
  void add(const AgentFinished& finished);
  /// The same for a call of a model in a turn that has not ended, each time that more is known of it.
  void add(const EarlierCall& call);

  bool is_whole() const { return !broken_; }
  bool has_turns() const { return !known_.empty() || has_calls_; }
  /// All of it, for the folder of the record.
  const std::string& text() const { return text_; }
  /// The record is written, or nothing was run: removes the journal next to it, and ends the lock.
  void remove();

 private:
  void lock(bool resumed);
  void remove_file() const;
  void write(const std::string& line);

  std::filesystem::path path_;
  std::function<void(const std::string& message)> on_warning_;
  std::optional<FileLock> lock_;  // none: the folder cannot be written, as the journal's own file will say
  UniqueFd file_;
  std::string text_;
  std::set<int> known_;  // turns
  bool has_calls_ = false;
  std::size_t good_ = 0;  // bytes on disk that are whole lines
  bool broken_ = false;
};

}  // namespace baton::inline v1

namespace baton::inline v1 {

/// All members on the thread of the run, but for the constructor. The destructor of one that has written nothing leaves
/// a journal with turns where it is.
class RunRecorder {
 public:
  /// Begins the journal. `options` has a `record`; of `head` everything but inputs and seed. Throws as RecordFolder and
  /// RunJournal do.
  RunRecorder(const Engine& engine, const Workflow& workflow, const RunOptions& options, JournalHead head,
              std::function<void(const std::string& message)> on_warning);

  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  /// Each event, before the host sees it.
  void add(const Event& event);
  /// The prompt of a turn's attempt, as RunRequest::on_prompt has it. That of the last attempt is recorded.
  void add_prompt(const std::string& turn, std::string text, std::vector<std::int32_t> ids);

  /// Writes the folder, and removes the journal next to it. An error becomes record.record_error.
  void write(RunRecord& record) noexcept;

  /// Writes nothing, and removes the journal.
  void drop() noexcept;

 private:
  struct Prompt {
    std::string text;
    std::vector<std::int32_t> ids;
  };

  void add_result(const std::string& turn, const std::string& text);

  Engine engine_;
  Workflow workflow_;
  std::filesystem::path path_;
  std::map<std::string, std::string> inputs_;
  RecordFolder folder_;
  RunJournal journal_;
  bool over_ = false;
  Clock::time_point begin_{};
  std::string lines_;                                // lines of events.ndjson
  std::map<std::string, Prompt> prompts_;            // by turn
  std::set<std::string> resumed_;                    // turns of an earlier process
  std::map<std::string, std::string> tool_results_;  // of the resumed turns, by turn
};

}  // namespace baton::inline v1
