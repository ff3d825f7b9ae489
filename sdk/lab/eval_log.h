// SPDX-License-Identifier: Apache-2.0
// LineFile: a file that grows by whole lines.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/system/file.h"
#include "sdk/lab/eval_score.h"

namespace baton::inline v1::lab {
using namespace cli;

/// Not safe from several threads at once.
class LineFile {
 public:
  /// Opens the file behind its end, or makes it. `name` stands for it in errors: "--resume log.jsonl". Throws Failure
  /// with kUsage.
  LineFile(std::string name, const std::string& path);

  /// Appends the line and its end. Throws Failure with kRunFailed when not all of it can be written; the part that
  /// could be is removed.
  void add(std::string_view line);

 private:
  std::string name_;
  UniqueFd file_;
};

// EvalLog: the finished questions of an evaluation in a file, so that an interrupted one can be continued. The file is
// JSON Lines: the settings, then one line for each question (docs/lab.md, `baton-lab eval --resume`).

/// What one method did with one question.
struct MethodOutcome {
  Tally tally;
  Distances distances;
};

/// What all methods did with one question.
struct QuestionOutcome {
  std::string model;                   // fingerprint
  double full_score = 0.0;             // of full's answer, which the others are compared with
  std::vector<MethodOutcome> methods;  // in the order of the table
  std::optional<Distances> floor;      // of the noise floor, where it was measured
};

/// Not safe from several threads at once.
class EvalLog {
 public:
  /// Reads `path`, or begins it when it does not exist or is empty. What stands behind the last whole line was cut off
  /// while it was written, and is dropped. Throws Failure when the file is not of an evaluation (it is left unchanged),
  /// when its settings are others (naming them), for a damaged line (FILE:LINE), and when it cannot be written.
  EvalLog(std::string path, const nlohmann::ordered_json& settings);

  /// Removes and returns the outcome of a question that the file held. `team`: the size given by --agents; 0: as the
  /// workflow has it. `methods`: the table's methods in their order; throws Failure when the outcome has others.
  std::optional<QuestionOutcome> take(int team, const std::string& question, const std::vector<Score>& methods);

  /// Appends a line and flushes it. Throws Failure when it cannot be written, or when another model answered the
  /// questions so far.
  void add(int team, const std::string& question, const QuestionOutcome& outcome);

 private:
  void read_line(const std::string& line, std::size_t number);
  void check_model(const std::string& model);

  std::string path_;
  std::string model_;  // fingerprint of the first outcome's
  std::map<std::pair<int, std::string>, QuestionOutcome> outcomes_;
  std::optional<LineFile> file_;
};

/// 64 bits of a text as hexadecimal digits (FNV-1a): tells a changed file from an equal one.
std::string digest(const std::string& text);

}  // namespace baton::inline v1::lab
