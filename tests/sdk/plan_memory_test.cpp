// SPDX-License-Identifier: Apache-2.0
// Compares the plan's memory with what runs reserve.
#include <baton/baton.h>
#include <baton/preview.h>
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "tests/support/folders.h"
#include "tests/support/own_cache.h"
#include "tests/support/thread_time.h"

namespace {

/// A team whose prompts are much longer than a block of keys, and whose answers all have their maximum length.
struct MemoryTeam {
  std::string text;  // its workflow
  std::string topology, method;
  bool reaches = true;          // the turns that the plan adds up run at the same time, whatever takes how long
  baton::RunOptions options{};  // with the answers
};

class MemoryTeamMaker {
 public:
  explicit MemoryTeamMaker(std::uint64_t seed) : random_(seed) {}

  MemoryTeam make() {
    MemoryTeam team;
    const std::string topology = team.topology = of({"chain", "parallel", "star", "debate", "layered", "graph"});
    const int agents = number(topology == "star" ? 2 : 1, 5);
    const int rounds = topology == "debate" ? number(1, 3) : 1;
    team.method = of({"full", "prefix", "lockstep", "rectify"});
    // A prompt that lockstep computes ahead may find its author's turn over, and turns of a graph may miss each other.
    team.reaches = topology != "graph" && team.method != "lockstep";
    team.text = fmt::format(
        "version: 1\nname: memory\ninputs: {{}}\nmodels: {{main: {{path: nano, kv_dtype: {}}}}}\nrelay: {{method: "
        "{}}}\nagents:\n",
        of({"bf16", "f32"}), team.method);
    std::string steps, names;
    for (int at = 0; at < agents; ++at) {
      std::string prompt = words(number(700, 900)), needs;
      for (int before = 0; before < at; ++before) {
        const bool sees = topology == "chain" || (topology == "layered" && at >= 2 && before < 2) ||
                          (topology == "star" && at == agents - 1) || (topology == "graph" && number(0, 1) == 1);
        if (!sees) continue;
        prompt += fmt::format(" {{{{ agent_a{}_current }}}} {}", before, words(4));
        needs += fmt::format("{}a{}", needs.empty() ? "" : ", ", before);
      }
      const int tokens = number(4, 60);
      team.text += fmt::format("  a{}: {{max_tokens: {}, prompt: \"{}\"}}\n", at, tokens, prompt);
      steps += fmt::format("{}{{agent: a{}, needs: [{}]}}", steps.empty() ? "" : ", ", at, needs);
      names += fmt::format("{}a{}", names.empty() ? "" : ", ", at);
      for (int round = 1; round <= rounds; ++round)
        team.options.forced_outputs[round == 1 ? fmt::format("a{}", at) : fmt::format("a{}#{}", at, round)] =
            std::vector<std::int32_t>(static_cast<std::size_t>(tokens - 1), 300);
    }
    team.text += "workflow: {topology: " + topology;
    if (topology == "graph") team.text += ", steps: [" + steps + "]";
    if (topology == "star") team.text += fmt::format(", agents: [{}], center: a{}", names, agents - 1);
    if (topology == "layered")
      team.text +=
          agents > 2 ? fmt::format(", layers: [[a0, a1], [{}]]", names.substr(8)) : ", layers: [[" + names + "]]";
    if (topology == "debate") team.text += fmt::format(", agents: [{}], rounds: {}", names, rounds);
    if (topology == "chain" || topology == "parallel") team.text += ", agents: [" + names + "]";
    team.text += "}\n";
    return team;
  }

 private:
  int number(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  std::string of(const std::vector<std::string>& texts) {
    return texts[static_cast<std::size_t>(number(0, static_cast<int>(texts.size()) - 1))];
  }
  std::string words(int count) {
    std::string text;
    while (count-- > 0)
      text += of({"apples", "seven", "more", "the", "buys", "many", "how", "she"}) + (count > 0 ? " " : "");
    return text;
  }

  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("the plan's memory is what runs of random teams reserve, and at most a tenth more") {
  const baton::test::OwnCache cache;
  const std::uint64_t teams = baton::test::nightly() ? 500 : 40;
  int reaching = 0;
  for (std::uint64_t seed = 0; seed < teams; ++seed) {
    MemoryTeam team = MemoryTeamMaker(seed).make();
    CAPTURE(seed, team.topology, team.method);
    const auto engine = baton::Engine::open(
        {.model = (baton::test::source_folder() / "samples/models/nano").string(), .device = "cpu", .threads = 1});
    const auto workflow = baton::Workflow::parse(team.text);
    const baton::Preview plan = engine.preview(workflow);
    const baton::RunRecord record = engine.run(workflow, team.options);
    REQUIRE(record.state == baton::RunState::ok);
    const std::int64_t ran = record.memory.kv_peak_bytes;
    CHECK(plan.kv_peak_bytes + plan.kv_ahead_bytes >= ran);
    if (!team.reaches) continue;
    ++reaching;
    // A forced answer is a token shorter than its maximum, so readers' prompts may take a block less: they are known
    // now.
    const baton::Preview known = engine.preview(workflow, {.record = &record});
    CHECK(known.kv_peak_bytes >= ran);
    CHECK(static_cast<double>(known.kv_peak_bytes) <= 1.1 * static_cast<double>(ran));
  }
  CHECK(reaching > static_cast<int>(teams) / 2);
}
