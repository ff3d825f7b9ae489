// SPDX-License-Identifier: Apache-2.0
// Records a run as RunOptions::record asks for it: its journal while it goes on, then the folder (docs/cli.md).
#pragma once

#include <functional>
#include <map>
#include <string>

#include <baton/engine.h>

#include "engine/base/clock.h"
#include "sdk/record/record_folder.h"
#include "sdk/record/run_journal.h"

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

  /// Writes the folder, and removes the journal next to it. What cannot be written becomes record.record_error.
  void write(RunRecord& record) noexcept;

  /// Writes nothing, and removes the journal.
  void drop() noexcept;

 private:
  void add_result(const std::string& turn, const std::string& text);

  Engine engine_;
  Workflow workflow_;
  std::filesystem::path path_;
  std::map<std::string, std::string> inputs_;
  RecordFolder folder_;
  RunJournal journal_;
  bool over_ = false;
  Clock::time_point begin_{};
  std::string lines_;                                // of events.ndjson
  std::map<std::string, std::string> tool_results_;  // by turn
};

}  // namespace baton::inline v1
