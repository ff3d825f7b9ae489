// SPDX-License-Identifier: Apache-2.0
// The ways in which a team is run, and what each of them must give: the answers of `full`. One row of the table in
// ways.cpp is one way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/loop/step_engine.h"
#include "tests/teams/random_team.h"
#include "tests/teams/team_run.h"

namespace baton::test {

/// A model on the CPU, which any number of engines share.
struct TeamModel {
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;
};

/// How often something happened, by its name: what the random teams did in fact reach.
using Reached = std::map<std::string, std::int64_t>;

/// Runs teams in all ways. Each way has an engine of its own, so a seed alone says what a trial does, but for the time
/// that each of its threads gets.
class TeamTrials {
 public:
  TeamTrials(const TeamModel& model, const TeamLimits& limits);
  ~TeamTrials();

  /// Returns what is wrong, with the seed, the workflow and the first difference; empty: nothing.
  std::string run(std::uint64_t seed);

  const Reached& reached() const { return reached_; }

 private:
  struct Team;
  class Trial;

  std::shared_ptr<Team> team(std::uint64_t seed);
  static std::string hash_line(std::uint64_t seed, const Team& team);

  const TeamModel& model_;
  TeamLimits limits_;
  std::shared_ptr<Team> last_;  // company for the next one
  Reached reached_;
};

}  // namespace baton::test
