// SPDX-License-Identifier: Apache-2.0
// How near a method's distributions are to those of full prefill, over the same texts. Rows of logits are compared as
// they come: only full prefill's are kept, of one question at a time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <baton/baton.h>

#include "engine/base/system/file.h"

namespace baton::inline v1::lab {
using namespace cli;

/// A run's answers as token ids, by turn.
struct Trace {
  std::map<std::string, std::vector<std::int32_t>> tokens;

  /// Fills the trace while a run goes on; the trace must outlive it.
  void record(RunOptions& options, const Workflow& workflow);
};

/// A row of logits and what every comparison with it needs.
struct LogitsRow {
  std::vector<float> logits;  // [V]; empty: in the file of the rows
  std::int64_t offset = 0;    // in that file, in bytes
  double log_sum_exp = 0.0;
  std::size_t likeliest = 0;  // index of the first largest logit
};

/// Full prefill's logits over one question: of the turns that read other agents, by turn, then token; the last row is
/// that of the end. Rows over kMemoryBytes go to a temporary file that has no name, because an answer of a vocabulary
/// of 150,000 tokens has 600 KB of logits a token.
class ReferenceRows {
 public:
  /// `compared`: other runs will be compared with the rows. Otherwise their logits are not kept.
  explicit ReferenceRows(bool compared) : compared_(compared) {}

  /// Fills the rows while a run goes on, from any thread; this object must outlive the run.
  void record(RunOptions& options, const Workflow& workflow);

  /// Computes the rest of each row when the run has ended: it would lengthen the run's engine steps. Throws Failure
  /// (kResources) when rows could not be written to the temporary file or read from it.
  void complete();

  /// Returns the logits of a row, read into `memory` where they are in the file; empty when they cannot be read. From
  /// any thread.
  std::span<const float> logits(const LogitsRow& row, std::vector<float>& memory) const;

  static constexpr std::size_t kMemoryBytes = std::size_t{128} << 20;

  const std::map<std::string, std::vector<LogitsRow>>& turns() const { return turns_; }

 private:
  bool compared_;
  std::set<std::string> readers_;  // the turns that read other agents
  void store(LogitsRow& row, std::span<const float> logits);

  std::mutex mutex_;
  std::size_t memory_bytes_ = 0;
  std::size_t vocabulary_ = 0;
  UniqueFd file_;
  std::int64_t file_bytes_ = 0;
  std::string problem_;  // of the file, or empty
  std::map<std::string, std::vector<LogitsRow>> turns_;
};

/// How far the distributions of one turn's answer are from full prefill's.
struct TurnDistance {
  std::vector<double> kl;     // of each token, in nats
  std::int64_t agreeing = 0;  // tokens that both would have chosen, greedily
  double guard = -1.0;        // AgentRecord::guard_change
};

/// The distances of one run over one question, by turn.
using Distances = std::map<std::string, TurnDistance>;

/// Compares a run that is forced to full prefill's answers with it, row by row as the rows come.
class Comparison {
 public:
  /// `reference` must outlive this object and be complete.
  explicit Comparison(const ReferenceRows& reference) : reference_(reference) {}

  /// Measures while a run goes on, from any thread; this object must outlive the run.
  void record(RunOptions& options);

  Distances take() { return std::move(distances_); }

 private:
  const ReferenceRows& reference_;
  std::mutex mutex_;
  Distances distances_;
  std::map<std::string, std::vector<float>> memory_;  // by turn: for a row of the reference that is read from the file
};

/// The distances of full prefill from itself: 0, with all tokens agreeing.
Distances no_distances(const ReferenceRows& reference);

/// Sums over turns; the values are means.
class Quality {
 public:
  void add(const Distances& distances, const Workflow& workflow);

  double kl_first_token() const { return first_ == 0 ? 0.0 : kl_first_ / static_cast<double>(first_); }
  double kl_mean() const { return positions_ == 0 ? 0.0 : kl_ / static_cast<double>(positions_); }
  /// Fraction of tokens that the method would have chosen as well, greedily.
  double agreement() const {
    return positions_ == 0 ? 0.0 : static_cast<double>(agreeing_) / static_cast<double>(positions_);
  }
  std::int64_t positions() const { return positions_; }
  /// Fraction of turns whose mean KL is at most kTolerance.
  double within_tolerance() const {
    return first_ == 0 ? 0.0 : static_cast<double>(within_) / static_cast<double>(first_);
  }

  static constexpr double kTolerance = 0.02;  // nats

 private:
  double kl_ = 0.0;
  double kl_first_ = 0.0;
  std::int64_t positions_ = 0;
  std::int64_t first_ = 0;
  std::int64_t agreeing_ = 0;
  std::int64_t within_ = 0;
};

/// The sum of the KL over all tokens of one question, and their number.
std::pair<double, std::int64_t> total_of(const Distances& distances);

}  // namespace baton::inline v1::lab
