// SPDX-License-Identifier: Apache-2.0
// A random team: a workflow file, inputs and a seed, all drawn from one number. The files use what docs/yaml.md offers:
// every topology, rounds, conditions, tools, retries, stop strings, loops, histories, unusual texts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace baton::test {

struct TeamLimits {
  int agents = 5;  // without the decision agent
  int rounds = 3;
  int max_tokens = 40;  // of an answer
};

struct RandomTeam {
  std::uint64_t seed = 0;
  std::string topology;
  std::string yaml;
  std::vector<std::string> agents;  // ids of those that ask a model
  std::map<std::string, std::string> inputs;
  std::uint64_t run_seed = 0;
};

/// A team whose runs always end by themselves, with state ok: agents whose attempts may fail are skipped or replaced.
RandomTeam random_team(std::uint64_t seed, const TeamLimits& limits);

}  // namespace baton::test
