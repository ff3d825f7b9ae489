// SPDX-License-Identifier: Apache-2.0
// A workflow under load: runs that arrive at random times, while those before them go on.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <baton/baton.h>

#include "sdk/console/html.h"
#include "sdk/lab/dataset.h"
#include "sdk/lab/eval_quality.h"

namespace baton::inline v1::lab {
using namespace cli;

/// Times in milliseconds, in ascending order.
class Times {
 public:
  explicit Times(std::vector<double> values);
  bool empty() const { return values_.empty(); }
  double mean() const;
  /// Linear between the two nearest; `fraction` from 0 to 1. 0 without values.
  double quantile(double fraction) const;
  nlohmann::ordered_json to_json() const;  // null without values

 private:
  std::vector<double> values_;
};

/// One method at one rate.
struct LoadPoint {
  double offered = 0;       // runs a minute that arrived
  double finished = 0;      // runs a minute that ended well, from the first arrival to the last end
  std::int64_t failed = 0;  // runs that did not
  std::string error;        // of the first of them
  // Of runs that ended well.
  Times first_token{{}};  // of turns: from their last input, with waiting
  Times whole_run{{}};    // from arrival to end
  std::int64_t output_tokens = 0;
  double tokens_per_s = 0;        // of all agents, from the first arrival to the last end
  double agent_tokens_per_s = 0;  // median over turns: decode speed
};

/// The times of `count` arrivals of a Poisson process, in milliseconds after the first; the same arguments give the
/// same times, and another rate the same times scaled.
std::vector<double> arrival_times(std::size_t count, double per_minute, std::uint64_t seed);

struct LoadRuns {
  std::span<const Question> questions;
  std::span<const Trace> answers;  // of each question, which its run is forced to; empty: runs choose their own
  std::uint64_t seed = 0;          // of the arrivals
};

/// Starts a run for each question when it arrives, and waits for all. `progress`: called with the number of runs that
/// are over. After an interrupt the rest of the runs is neither started nor counted.
LoadPoint measure_load(const Engine& engine, const Workflow& workflow, const LoadRuns& runs, double per_minute,
                       const std::function<void(std::size_t over)>& progress);

/// The answers of each question, from runs of a workflow, of which `at_a_time` run concurrently. Throws Failure where a
/// run fails, and for a question that does not fit the workflow.
std::vector<Trace> answers_of(const Engine& engine, const Workflow& workflow, std::span<const Question> questions,
                              std::size_t at_a_time, const std::function<void(std::size_t over)>& progress);

// The results of a workflow under load: a table, JSON, a picture.

struct LoadRow {
  std::string method;
  LoadPoint point;
};

std::string table_of(const std::vector<LoadRow>& rows);

/// An array with an object for each row.
nlohmann::ordered_json json_of(const std::vector<LoadRow>& rows);

/// Times over rates, as an SVG file of its own.
Markup load_svg(const std::string& workflow, std::vector<LoadRow> rows);

}  // namespace baton::inline v1::lab
