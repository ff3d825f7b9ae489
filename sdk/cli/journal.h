// SPDX-License-Identifier: Apache-2.0
// Reads the journal of a recorded run, which sdk/record/run_journal.h writes: how it was started, and each turn that
// has ended. `baton resume` goes on from it, and `baton compare --replay` compares with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <baton/baton.h>
#include <baton/turns.h>

#include "sdk/console/options.h"

namespace baton::cli {

/// How a run was started.
struct JournalStart {
  std::string folder;  // the current folder, from which paths are named
  WorkflowArguments workflow;
  std::string fingerprint;  // the workflow's
  std::map<std::string, std::string> inputs;
  std::optional<std::uint64_t> seed;
  std::string local_time;  // RunOptions::local_time; empty: an old journal
};

struct JournalContent {
  std::string file;  // for messages
  JournalStart start;
  std::vector<AgentFinished> finished;
  std::vector<EarlierCall> calls;  // of models
};

/// Of a run that goes on: reads the journal next to the folder of its record, else that in the folder. A last line that
/// is not whole is left out. Throws Failure.
JournalContent read_journal(const std::filesystem::path& folder);

/// Throws Failure if a turn of the journal is none of `turns`, the workflow's, if one stands there twice, or if one has
/// a state that no turn in a journal has.
void check_journal(const JournalContent& journal, const std::vector<TurnInfo>& turns);

/// A recorded run as it is started again, in the folder in which it was started.
struct Restarted {
  JournalContent journal;
  EngineArguments engine;
  Workflow workflow;
};

/// Enters the folder in which the run was started, and loads its workflow, which must not have changed. Throws Failure.
Restarted restart(JournalContent journal, EngineArguments engine);

}  // namespace baton::cli
