// SPDX-License-Identifier: Apache-2.0
// The gate of exactness: random teams, run in every way of ways.cpp, give token for token the answers of `full`.
//
//   BATON_RANDOM_TEAMS=2000   how many teams, in place of 200
//   BATON_RANDOM_TEAM=SEED    this team alone, as often as BATON_RANDOM_TEAMS says (once): threads differ each time
//   BATON_TEAM_HASHES=FILE    appends a line for each team: its seed, and a hash of its tokens
//   (tests/bits/same_bits.py) BATON_TEST_MODELS=DIR     also the smallest .gguf file of a folder, with
//   BATON_RANDOM_TEAMS teams (20)
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/cpu/cpu.h"
#include "tests/support/folders.h"
#include "tests/support/process_memory.h"
#include "tests/support/published_models.h"
#include "tests/support/thread_time.h"
#include "tests/support/tiny_model.h"
#include "tests/teams/team_tools.h"
#include "tests/teams/ways.h"
#include "workflows/compile.h"

namespace random_teams_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr int kMaxFailures = 3;

std::optional<std::uint64_t> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? std::nullopt : std::optional<std::uint64_t>(std::stoull(text));
}

/// `share`: of the teams that are asked for, or of the `usual` number; their seeds begin with `first`.
Reached try_teams(const TeamModel& model, const TeamLimits& limits, std::uint64_t first, double share,
                  std::uint64_t usual) {
  TeamTrials trials(model, limits);
  const auto single = number_of("BATON_RANDOM_TEAM");
  const auto asked = number_of("BATON_RANDOM_TEAMS");
  const auto count =
      single ? asked.value_or(1) : static_cast<std::uint64_t>(share * static_cast<double>(asked.value_or(usual)) + 0.5);
  int failures = 0;
  for (std::uint64_t i = 0; i < count && failures < kMaxFailures; ++i) {
    const std::uint64_t seed = single.value_or(first + i);
    const std::string wrong = trials.run(seed);
    if (wrong.empty()) continue;
    ++failures;
    FAIL_CHECK("again alone: BATON_RANDOM_TEAM=" << seed << "\n" << wrong);
  }
  std::string list = std::to_string(count) + " teams";
  for (const auto& [name, times] : trials.reached()) list += "\n  " + name + ": " + std::to_string(times);
  WARN(list);
  return trials.reached();
}

/// Teams that reach nothing would prove nothing.
void check_reached(const Reached& reached, std::int64_t teams) {
  if (number_of("BATON_RANDOM_TEAM") || number_of("BATON_RANDOM_TEAMS")) return;
  for (const char* name : {"calls of tools", "retries", "skipped turns", "failed turns", "stop strings",
                           "empty outputs", "evicted prefixes", "cancelled runs", "teams with some exact readers",
                           "rectified placeholders", "tentative tokens", "drafted tokens", "turns that remember",
                           "forgotten runs", "turns taken from an earlier run"}) {
    INFO(name);
    CHECK(reached.at(name) >= teams / 20);
  }
  for (const char* name : {"rows ahead", "tokens computed ahead", "tokens from prefixes"}) {
    INFO(name);
    CHECK(reached.at(name) >= 100 * teams);
  }
}

/// Sanitizers are slow.
std::uint64_t usual_teams() { return kFreedIsKept ? 20 : nightly() ? 200 : 56; }

}  // namespace

TEST_CASE("random teams: every seed gives a valid workflow") {
  const ToolRegistry tools = team_tools();
  ReadOptions options;
  options.tools = &tools;
  for (std::uint64_t seed = 1; seed <= 10 * usual_teams(); ++seed) {
    const RandomTeam team = random_team(seed, {});
    INFO(seed << "\n" << team.yaml);
    CHECK_NOTHROW(compile(std::string_view(team.yaml), "team.yaml", options));
  }
}

TEST_CASE("random teams: a tiny model gives the answers of full in every way") {
  TeamModel model{make_cpu_backend(1), nullptr};
  TinyOptions options{.layers = 3, .width = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn_width = 48};
  options.context = 4096;
  options.window = 200;
  options.bias = true;
  options.eos_tokens = {257, 'q',  'T', ';',
                        4,   0x80, 0xd0};  // with one alone, hardly an answer would end; none of a call
  model.model = make_tiny_model(*model.backend, options);
  check_reached(try_teams(model, {}, 1, 0.8, usual_teams()), usual_teams() * 4 / 5);
}

TEST_CASE("random teams: tiny models with recurrent layers give the answers of full in every way") {
  std::uint64_t first = 31001;
  for (const LayerKind kind : {LayerKind::short_convolution, LayerKind::delta_net, LayerKind::mamba2}) {
    TeamModel model{make_cpu_backend(1), nullptr};
    TinyOptions options = hybrid_tiny(kind);
    options.width = 32;
    options.heads = 4;
    options.head_dim = 8;
    options.ffn_width = 48;
    options.context = 4096;
    options.eos_tokens = {257, 'q', 'T', ';', 4, 0x80, 0xd0};
    model.model = make_tiny_model(*model.backend, options);
    const double share = number_of("BATON_RANDOM_TEAMS") ? 1.0 / 3.0 : 0.03;
    const Reached reached = try_teams(model, {}, first, share, usual_teams());
    first += 1000;
    if (number_of("BATON_RANDOM_TEAM") || number_of("BATON_RANDOM_TEAMS")) continue;
    for (const char* name : {"rows ahead", "tokens computed ahead", "tokens from prefixes", "drafted tokens"}) {
      INFO(name);
      CHECK(reached.at(name) > 0);
    }
    CHECK(reached.at("rectified placeholders") == 0);
  }
}

namespace {

/// The same model, small enough for many teams, with room for them, and with tokens that end an answer now and then.
TinyOptions for_teams(TinyOptions options) {
  options.width = 32;
  options.heads = 4;
  options.head_dim = 8;
  options.ffn_width = 48;
  options.window = 200;
  options.context = 4096;
  options.eos_tokens = {257, 'q', 'T', ';', 4, 0x80, 0xd0};
  return options;
}

}  // namespace

TEST_CASE("random teams: a tiny model whose layers read the KV of others gives the answers of full in every way") {
  TeamModel model{make_cpu_backend(1), nullptr};
  model.model = make_tiny_model(*model.backend, for_teams(gemma4_tiny(4)));
  const double share = number_of("BATON_RANDOM_TEAMS") ? 1.0 : 0.1;
  const Reached reached = try_teams(model, {}, 41001, share, usual_teams());
  if (number_of("BATON_RANDOM_TEAM") || number_of("BATON_RANDOM_TEAMS")) return;
  for (const char* name : {"rows ahead", "tokens computed ahead", "tokens from prefixes"}) {
    INFO(name);
    CHECK(reached.at(name) > 0);
  }
}

TEST_CASE("random teams: a tiny model of several residual streams gives the answers of full in every way") {
  TeamModel model{make_cpu_backend(1), nullptr};
  model.model = make_tiny_model(*model.backend, for_teams(gemma3n_tiny()));
  const double share = number_of("BATON_RANDOM_TEAMS") ? 1.0 : 0.1;
  try_teams(model, {}, 42001, share, usual_teams());
}

TEST_CASE("random teams: the shipped model gives the answers of full in every way") {
  TeamModel model{make_cpu_backend(1), nullptr};
  model.model = open_model(*model.backend, source_folder() / "samples/models/nano", {});
  check_reached(try_teams(model, {.agents = 4, .rounds = 2, .max_tokens = 24}, 11001, 0.2, usual_teams()),
                usual_teams() / 5);
}

TEST_CASE("random teams: a published model gives the answers of full in every way", "[published]") {
  const auto models = published_models();
  if (models.empty()) return;
  const std::filesystem::path& smallest = models.front();
  INFO(smallest);
  TeamModel model{make_cpu_backend(1), nullptr};
  model.model = open_model(*model.backend, smallest, {});
  try_teams(model, {.agents = 4, .rounds = 2, .max_tokens = 12}, 20001, 1.0, 20);
}

}  // namespace random_teams_test
