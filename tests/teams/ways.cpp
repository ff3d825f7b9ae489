// SPDX-License-Identifier: Apache-2.0
#include "tests/teams/ways.h"
#include "engine/reuse/rectify/rectify.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/base/hash.h"
#include "engine/cpu/cpu.h"
#include "tests/teams/draw.h"
#include "tests/teams/team_tools.h"
#include "workflows/compile.h"

namespace baton::test {
namespace {

/// What the workflow says, and what a way changes in it.
enum class Settings : std::uint8_t {
  written,
  sampled,     // every agent at temperature 1, from a seed of its own
  all_exact,   // every agent with `exact: true`
  some_exact,  // about half of them
};

enum class Machine : std::uint8_t {
  usual,      // one thread, the engine's defaults
  odd_steps,  // other numbers of threads, of rows in a step, of sequences at once, another slowdown
  tight,      // memory for little more than the largest prompt: prefixes and early prompts are evicted
};

enum class Course : std::uint8_t {
  alone,
  again,      // a second time on the same engine, which has prefixes of the first
  company,    // with the same and another team on the same engine at the same time
  session,    // three times, in a session
  resumed,    // once whole, and again with the first of its turns that ended well
  cancelled,  // while and after the same run is cancelled at a random moment
  forced,     // twice, with the answers of `full` forced on agents that may read approximate KV; the others must agree
};

struct Way {
  const char* name;
  const char* relay;
  Settings settings;
  Machine machine;
  Course course;
};

constexpr Way kWays[] = {
    {"prefix", "prefix", Settings::written, Machine::usual, Course::again},
    {"lockstep", "lockstep", Settings::written, Machine::usual, Course::alone},
    {"exact, other steps", "exact", Settings::written, Machine::odd_steps, Course::again},
    {"prefix, company", "prefix", Settings::written, Machine::odd_steps, Course::company},
    {"lockstep, company", "lockstep", Settings::written, Machine::usual, Course::company},
    {"lockstep, after a cancelled run", "lockstep", Settings::written, Machine::usual, Course::cancelled},
    {"prefix, little memory", "prefix", Settings::written, Machine::tight, Course::company},
    {"lockstep, little memory", "lockstep", Settings::written, Machine::tight, Course::company},
    {"lockstep, sampled", "lockstep", Settings::sampled, Machine::usual, Course::alone},
    {"lockstep, sampled, cancelled", "lockstep", Settings::sampled, Machine::odd_steps, Course::cancelled},
    {"verified", "verified", Settings::written, Machine::usual, Course::again},
    {"verified, company", "verified", Settings::written, Machine::odd_steps, Course::company},
    {"verified, little memory", "verified", Settings::written, Machine::tight, Course::company},
    {"verified, sampled, cancelled", "verified", Settings::sampled, Machine::usual, Course::cancelled},
    {"prefix, session", "prefix", Settings::written, Machine::odd_steps, Course::session},
    {"lockstep, session", "lockstep", Settings::written, Machine::usual, Course::session},
    {"lockstep, session, little memory", "lockstep", Settings::written, Machine::tight, Course::session},
    {"verified, session", "verified", Settings::sampled, Machine::usual, Course::session},
    {"auto, exact readers, session", "auto", Settings::all_exact, Machine::usual, Course::session},
    {"lockstep, resumed", "lockstep", Settings::sampled, Machine::usual, Course::resumed},
    {"prefix, resumed", "prefix", Settings::written, Machine::odd_steps, Course::resumed},
    {"auto, exact readers", "auto", Settings::all_exact, Machine::usual, Course::again},
    {"auto, some exact readers", "auto", Settings::some_exact, Machine::usual, Course::forced},
};

}  // namespace

/// A team, its plans, and its answers under `full`.
struct TeamTrials::Team {
  Team(RandomTeam made, const TeamModel& model_of) : random(std::move(made)), model(model_of) {}

  TeamRun run(Settings settings, const std::string& relay) const {
    ReadOptions options;
    const ToolRegistry tools = team_tools();
    options.tools = &tools;
    options.set = {{"relay.method", relay}};
    if (settings == Settings::some_exact || relay == "verified") options.set.emplace_back("relay.min_tokens", "1");
    Draw draw(random.seed);
    for (const std::string& agent : random.agents) {
      const std::string key = "agents." + agent;
      if (settings == Settings::sampled) options.set.emplace_back(key + ".temperature", "1");
      const bool exact = settings == Settings::all_exact || draw.chance(0.5);
      if (settings == Settings::all_exact || settings == Settings::some_exact)
        options.set.emplace_back(key + ".exact", exact ? "true" : "false");
    }
    TeamRun run;
    run.plan = std::make_shared<const Plan>(compile(std::string_view(random.yaml), "team.yaml", options));
    run.inputs = random.inputs;
    run.seed = random.run_seed + (settings == Settings::sampled ? 1 : 0);
    run.logits = random.seed % 2 == 0;
    return run;
  }

  std::shared_ptr<StepEngine> engine(LocalEngineOptions options = {}, int threads = 1) const {
    options.min_tentative_rows = 1;
    options.draft_always = random.seed % 3 == 0;
    auto made = std::make_shared<StepEngine>(make_cpu_backend(threads), model.model, options);
    // As if rectification left nothing: `auto` takes it wherever it may.
    update_calibration(*made, [&](Calibration& now) { now.range = {0, 1, model.model->config.layers - 1}; });
    update_calibration(*made, [&](Calibration& now) {
      now.levels = {{0, 1, model.model->config.layers - 1}, {{0.6, 0.0, 0.0}}, 0.0};
    });
    return made;
  }

  /// The same for all ways that change the sampling alike.
  const TeamAnswers& expected(Settings settings) {
    auto& found = full[settings == Settings::sampled];
    if (!found) found = std::make_unique<const TeamAnswers>(run_team(engine(), run(settings, "full")));
    return *found;
  }

  /// Of the runs of a session.
  const std::vector<TeamAnswers>& expected_session(Settings settings) {
    std::vector<TeamAnswers>& found = full_session[settings == Settings::sampled];
    if (found.empty()) found = session(engine(), run(settings, "full"));
    return found;
  }

  static std::vector<TeamAnswers> session(const std::shared_ptr<StepEngine>& engine, TeamRun run) {
    constexpr std::size_t kRuns = 3;
    SessionMemory memory;
    run.memory = &memory;
    std::vector<TeamAnswers> answers;
    while (answers.size() < kRuns) answers.push_back(run_team(engine, run));
    return answers;
  }

  RandomTeam random;
  const TeamModel& model;
  std::unique_ptr<const TeamAnswers> full[2];
  std::vector<TeamAnswers> full_session[2];
};

/// One team in one way.
class TeamTrials::Trial {
 public:
  Trial(Team& team, Team& other, std::size_t way)
      : team_(team),
        other_(other),
        way_(kWays[way]),
        draw_(mixed_bits(team.random.seed * 64 + way)),
        expected_(team.expected(way_.settings)),
        run_(team.run(way_.settings, way_.relay)) {}

  /// The first difference, or nothing.
  std::string differences() {
    engine_ = machine();
    switch (way_.course) {
      case Course::alone:
        check("", run_team(engine_, run_));
        break;
      case Course::again:
        check("", run_team(engine_, run_));
        check("the second time: ", run_team(engine_, run_));
        break;
      case Course::session: {
        const std::vector<TeamAnswers>& expected = team_.expected_session(way_.settings);
        const std::vector<TeamAnswers> found = Team::session(engine_, run_);
        for (std::size_t i = 0; i < found.size(); ++i)
          check(fmt::format("run {} of the session: ", i + 1), expected[i], found[i]);
        break;
      }
      case Course::resumed:
        resume();
        break;
      case Course::company:
        in_company();
        break;
      case Course::cancelled:
        alongside_a_cancelled_run();
        break;
      case Course::forced:
        if (!force_readers()) break;
        check("", run_team(engine_, run_));
        check("the second time: ", run_team(engine_, run_));
        break;
    }
    return difference_;
  }

  void count(Reached& reached) const {
    const EngineStats stats = engine_->stats();
    reached["rows ahead"] += stats.rows_ahead;
    reached["evicted prefixes"] += stats.segments.evicted;
    reached["tokens from prefixes"] += reused_;
    reached["tokens computed ahead"] += ahead_;
    reached["cancelled runs"] += cancelled_;
    reached["teams with some exact readers"] += forced_;
    reached["rectified placeholders"] += rectified_;
    reached["tentative tokens"] += tentative_;
    reached["tentative tokens that were dropped"] += dropped_;
    reached["drafted tokens"] += drafted_;
    reached["turns that remember"] += remembered_;
    reached["forgotten runs"] += forgotten_;
    reached["turns taken from an earlier run"] += resumed_;
  }

 private:
  std::shared_ptr<StepEngine> machine() {
    LocalEngineOptions options;
    if (way_.machine == Machine::usual) return team_.engine(options);
    options.slowdown = draw_.of({0.01, 0.2, 1.0, 10.0});
    if (way_.machine == Machine::odd_steps) {
      options.max_step_rows = draw_.of({1, 2, 7, 16, 65, 300});
      options.max_prefill_rows = draw_.of({1, 5, 33, 128, 1000});
      options.max_sequences = draw_.of({1, 2, 3, 64});
      return team_.engine(options, draw_.between(1, 3));
    }
    std::int32_t positions = std::max(expected_.most_positions, other_.expected(Settings::written).most_positions);
    if (way_.course == Course::session) {
      for (const TeamAnswers& one : team_.expected_session(way_.settings))
        positions = std::max(positions, one.most_positions);
    }
    KvLayout layout = team_.model.model->kv_layout();
    layout.raw_keys = true;
    const auto largest = static_cast<double>(KvCache::bytes_for(*team_.model.backend, layout, positions));
    options.kv_budget_bytes = static_cast<std::int64_t>(largest * draw_.of({1.0, 1.1, 1.5, 2.5}));
    options.segment_budget_bytes = static_cast<std::int64_t>(largest * draw_.of({0.05, 0.2, 0.6}));
    return team_.engine(options);
  }

  void check(const std::string& which, const TeamAnswers& found) { check(which, expected_, found); }
  void check(const std::string& which, const TeamAnswers& expected, const TeamAnswers& found) {
    for (const AgentRecord& turn : found.record.agents) {
      remembered_ += turn.history ? 1 : 0;
      forgotten_ += turn.history ? turn.history->forgotten : 0;
      tentative_ += turn.tentative_tokens;
      dropped_ += turn.tentative_tokens - turn.confirmed_tokens;
      drafted_ += turn.drafted_tokens;
      for (const SlotRecord& slot : turn.slots) rectified_ += slot.method == rectify_method().name ? 1 : 0;
    }
    for (const auto& [turn, attempts] : found.answers) {
      for (const TurnAnswer& answer : attempts) {
        reused_ += answer.reused_tokens;
        ahead_ += answer.ahead_tokens;
      }
    }
    if (!difference_.empty()) return;
    const std::string difference = first_difference(expected, found, run_.forced);
    if (!difference.empty()) difference_ = which + difference;
  }

  /// False where an answer cannot be forced: an empty one, or one that a stop string cut.
  bool force_readers() {
    for (const PlannedTurn& turn : run_.plan->turns) {
      const auto found = expected_.answers.find(turn.id);
      if (turn.exact || found == expected_.answers.end()) continue;
      const TurnAnswer& last = found->second.back();
      if (last.tokens.empty() || last.reason == FinishReason::stop) return false;
      run_.forced[turn.id] = last.tokens;
    }
    return ++forced_ > 0;
  }

  void resume() {
    TeamRun whole = run_;
    std::vector<AgentFinished> finished;
    whole.on_event = [&](const Event& event) {
      const auto* one = std::get_if<AgentFinished>(&event);
      if (one != nullptr && one->record.state == TurnState::ok) finished.push_back(*one);
    };
    check("", run_team(engine_, whole));
    finished.resize(static_cast<std::size_t>(draw_.between(0, static_cast<int>(finished.size()))));
    TeamRun rest = run_;
    for (const AgentFinished& one : finished)  // those are not compared
      run_.forced.emplace(run_.plan->turns[static_cast<std::size_t>(one.turn)].id, std::vector<TokenId>());
    resumed_ += static_cast<std::int64_t>(finished.size());
    rest.finished = std::move(finished);
    check("resumed: ", run_team(machine(), rest));
  }

  void in_company() {
    const TeamRun other = other_.run(Settings::written, draw_.of({"full", "prefix", "lockstep"}));
    TeamAnswers twin, stranger;
    std::thread first([&] { twin = run_team(engine_, run_); });
    std::thread second([&] { stranger = run_team(engine_, other); });
    const TeamAnswers found = run_team(engine_, run_);
    first.join();
    second.join();
    check("", found);
    check("of two equal runs: ", twin);
    check("the other team: ", other_.expected(Settings::written), stranger);
  }

  /// Cancels a run at one of its events; the run that counts begins at another.
  void alongside_a_cancelled_run() {
    std::mutex mutex;
    std::condition_variable wake;
    bool begin = false;
    const auto let_begin = [&] {
      const std::lock_guard lock(mutex);
      begin = true;
      wake.notify_one();
    };
    const int cancel_at = draw_.between(0, expected_.events), begin_at = draw_.between(0, expected_.events);
    std::stop_source stop;
    TeamRun doomed = run_;
    doomed.stop = stop.get_token();
    doomed.on_event = [&, event = 0](const Event&) mutable {
      if (event == begin_at) let_begin();
      if (event++ == cancel_at) stop.request_stop();
    };
    std::thread thread([&] {
      cancelled_ += run_team(engine_, doomed).record.state == RunState::cancelled ? 1 : 0;
      let_begin();
    });
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return begin; });
    }
    const TeamAnswers alongside = run_team(engine_, run_);
    thread.join();
    check("", alongside);
    check("after it: ", run_team(engine_, run_));
  }

  Team& team_;
  Team& other_;
  const Way& way_;
  Draw draw_;
  const TeamAnswers& expected_;
  TeamRun run_;
  std::shared_ptr<StepEngine> engine_;
  std::string difference_;
  std::int64_t reused_ = 0, ahead_ = 0, cancelled_ = 0, forced_ = 0, rectified_ = 0;
  std::int64_t tentative_ = 0, dropped_ = 0, drafted_ = 0, remembered_ = 0, forgotten_ = 0, resumed_ = 0;
};

namespace {

void count(const RandomTeam& team, const TeamAnswers& answers, Reached& reached) {
  ++reached["topology " + team.topology];
  for (const AgentRecord& turn : answers.record.agents) {
    ++reached["turns"];
    reached["retries"] += std::max(turn.attempts, 1) - 1;
    for (const ToolUse& use : turn.tools) reached["calls of tools"] += use.generation > 0 ? 1 : 0;
    reached["skipped turns"] += turn.state == TurnState::skipped ? 1 : 0;
    reached["failed turns"] += turn.state == TurnState::failed ? 1 : 0;
    reached["stop strings"] += turn.finish_reason == FinishReason::stop ? 1 : 0;
    reached["ended by the model"] += turn.finish_reason == FinishReason::eos ? 1 : 0;
    reached["empty outputs"] += turn.finish_reason && turn.output.empty() ? 1 : 0;
    reached["answer tokens"] += turn.output_tokens;
    reached["prompt tokens"] += turn.prompt_tokens;
  }
}

}  // namespace

TeamTrials::TeamTrials(const TeamModel& model, const TeamLimits& limits) : model_(model), limits_(limits) {}
TeamTrials::~TeamTrials() = default;

std::shared_ptr<TeamTrials::Team> TeamTrials::team(std::uint64_t seed) {
  if (last_ && last_->random.seed == seed) return last_;
  return std::make_shared<Team>(random_team(seed, limits_), model_);
}

/// Returns a line with the seed and a hash of all tokens that `full` gave, of prompts and of answers.
std::string TeamTrials::hash_line(std::uint64_t seed, const Team& team) {
  std::uint64_t hash = 0;
  const auto add = [&](const std::vector<TokenId>& tokens) {
    hash = hash_bytes(tokens.data(), tokens.size() * sizeof(TokenId), hash + tokens.size());
  };
  const auto add_all = [&](const TeamAnswers& answers) {
    for (const std::string& turn : answers.turns) {
      const auto found = answers.answers.find(turn);
      if (found == answers.answers.end()) continue;
      for (const TurnAnswer& answer : found->second) {
        add(answer.prompt);
        add(answer.tokens);
        hash = hash_bytes(answer.logits.data(), answer.logits.size() * sizeof(std::uint64_t), hash);
      }
    }
  };
  for (const auto& answers : team.full) {
    if (answers) add_all(*answers);
  }
  for (const auto& session : team.full_session) {
    for (const TeamAnswers& answers : session) add_all(answers);
  }
  return fmt::format("{} {:016x}\n", seed, hash);
}

std::string TeamTrials::run(std::uint64_t seed) {
  const std::shared_ptr<Team> other = team(seed - 1), made = team(seed);
  const auto report = [&](const std::string& way, const std::string& what) {
    return fmt::format("seed {}, {}: {}\n{}", seed, way, what, made->random.yaml);
  };
  std::string way = "full";
  try {
    const TeamAnswers& full = made->expected(Settings::written);
    if (full.record.state != RunState::ok) return report(way, "the run failed: " + full.record.error);
    count(made->random, full, reached_);
    for (std::size_t i = 0; i < std::size(kWays); ++i) {
      way = kWays[i].name;
      Trial trial(*made, *other, i);
      const std::string difference = trial.differences();
      trial.count(reached_);
      if (!difference.empty()) return report(way, difference);
    }
  } catch (const std::exception& error) {
    return report(way, error.what());
  }
  if (const char* file = std::getenv("BATON_TEAM_HASHES")) std::ofstream(file, std::ios::app) << hash_line(seed, *made);
  last_ = made;
  return {};
}

}  // namespace baton::test
