// SPDX-License-Identifier: Apache-2.0
// baton compare: what two recorded runs have in common and where they part, or a recorded run and the same run now.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "sdk/cli/journal.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"
#include "sdk/report/data.h"
#include "sdk/report/page.h"

namespace baton::cli {
namespace {

constexpr int kShownColumns = 100;

namespace fs = std::filesystem;

class Diff {
 public:
  Diff(const std::string& first, const std::string& second)
      : names_{first, second}, a_(read_report(first).run), b_(read_report(second).run) {}

  int print() {
    compare("workflow", a_.workflow, b_.workflow);
    compare("version", a_.version, b_.version);
    compare("model", a_.model_fingerprint, b_.model_fingerprint);
    compare("device", a_.device, b_.device);
    compare("relay", a_.relay, b_.relay);
    compare("seed", fmt::format("{}", a_.seed), fmt::format("{}", b_.seed));
    compare("state", name_of(a_.state), name_of(b_.state));
    same_ = a_.state == b_.state;
    texts("input", a_.inputs, b_.inputs);
    result(fmt::format("wall time: {} and {}\n", duration(a_.wall_ms), duration(b_.wall_ms)));
    turns();
    texts("output", a_.outputs, b_.outputs);
    if (same_) result("the answers are the same\n");
    return same_ ? kOk : kVerificationFailed;
  }

 private:
  void compare(const char* what, std::string_view a, std::string_view b) const {
    if (a == b) return;
    result(fmt::format("{}: {} and {}\n", what, printable(a, Lines::fold), printable(b, Lines::fold)));
  }

  /// Both texts from a little before the first character that differs.
  void show(const std::string& a, const std::string& b) const {
    std::size_t at = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    at -= std::min<std::size_t>(at, 30);
    while (at > 0 && continues_character(a[at])) --at;
    for (const auto& [name, text] : {std::pair(&names_[0], &a), std::pair(&names_[1], &b)}) {
      const std::string from = printable(std::string_view(*text).substr(std::min(at, text->size())), Lines::fold);
      result(
          fmt::format("  {}: {}{}\n", printable(*name, Lines::fold), at > 0 ? "..." : "", head(from, kShownColumns)));
    }
  }

  void texts(const char* what, const NamedTexts& a, const NamedTexts& b) {
    for (const auto& [name, text] : a) {
      const auto other = b.find(name);
      if (other != b.end() && other->second == text) continue;
      same_ = false;
      result(fmt::format("{} {}: {}\n", what, printable(name, Lines::fold),
                         other == b.end() ? "is in the first only" : "differs"));
      if (other != b.end()) show(text, other->second);
    }
    for (const auto& [name, text] : b) {
      if (a.find(name) != a.end()) continue;
      same_ = false;
      result(fmt::format("{} {}: is in the second only\n", what, printable(name, Lines::fold)));
    }
  }

  void turns() {
    std::map<std::string, std::vector<const AgentRecord*>> others;
    for (const AgentRecord& turn : b_.agents) others[turn_name(turn.agent, turn.round)].push_back(&turn);
    std::map<std::string, std::size_t> seen;
    for (const AgentRecord& turn : a_.agents) {
      const std::string name = turn_name(turn.agent, turn.round);
      const auto& found = others[name];
      const std::size_t index = seen[name]++;
      if (index >= found.size()) {
        same_ = false;
        result(fmt::format("{}: is in the first only\n", name));
        continue;
      }
      compare_turns(name, turn, *found[index]);
    }
    for (const auto& [name, found] : others) {
      if (found.size() <= seen[name]) continue;
      same_ = false;
      result(fmt::format("{}: is in the second only\n", name));
    }
  }

  void compare_turns(const std::string& name, const AgentRecord& a, const AgentRecord& b) {
    const bool same = a.output == b.output && a.state == b.state;
    same_ = same_ && same;
    result(fmt::format("{}: {}; {} and {} tokens, first after {} and {}, {:.0f} and {:.0f} % of the KV reused\n", name,
                       same                 ? "the same"
                       : a.state != b.state ? fmt::format("{} and {}", name_of(a.state), name_of(b.state))
                                            : "differs",
                       a.output_tokens, b.output_tokens, duration(a.ttft_ms), duration(b.ttft_ms),
                       100 * a.kv.reuse_rate, 100 * b.kv.reuse_rate));
    if (!same) show(a.output, b.output);
  }

  std::string names_[2];
  RunRecord a_, b_;
  bool same_ = true;
};

struct CompareArguments {
  std::vector<std::string> folders;  // one with `replay`, else two
  bool replay = false;
  std::string html;
  EngineArguments engine;
  std::string timeout;
  bool quiet = false;
  bool verbose = false;
};

/// Where two answers part, or nothing.
std::string difference(const AgentFinished& recorded, const AgentFinished& found) {
  const auto [a, b] =
      std::mismatch(recorded.tokens.begin(), recorded.tokens.end(), found.tokens.begin(), found.tokens.end());
  if (a != recorded.tokens.end() || b != found.tokens.end())
    return fmt::format("differs from token {} on", a - recorded.tokens.begin() + 1);
  return recorded.record.output == found.record.output ? "" : "has another text";
}

int replay(const CompareArguments& arguments) {
  const auto [journal, engine_arguments, workflow] =
      restart(read_journal(fs::absolute(arguments.folders.front())), arguments.engine);
  const Engine engine = Engine::open(engine_arguments.options(journal.start.workflow.default_model(), arguments.quiet));
  const std::vector<TurnInfo> turns = workflow.turns();
  std::map<int, AgentFinished> found;
  RunOptions options;
  if (!arguments.timeout.empty()) options.timeout = duration_of_option(arguments.timeout, "--timeout");
  options.inputs = journal.start.inputs;
  options.seed = journal.start.seed;
  options.local_time = journal.start.local_time;
  options.stop = interrupted();
  options.calls = journal.calls;  // whose tools do not run again
  for (const AgentFinished& one : journal.finished) {
    const TurnInfo& turn = turns[static_cast<std::size_t>(one.turn)];
    if (turn.asks) options.answers[turn.id] = one.record.output;
  }
  options.on_event = [&](const Event& event) {
    if (const auto* finished = std::get_if<AgentFinished>(&event)) found[finished->turn] = *finished;
  };
  const RunRecord record = engine.run(workflow, options);
  if (record.state == RunState::cancelled) return kInterrupted;
  if (record.state != RunState::ok) note("the run failed: " + printable(record.error, Lines::keep) + "\n");
  std::size_t same = 0;
  for (const AgentFinished& recorded : journal.finished) {
    const std::string name = turn_name(recorded.record.agent, recorded.record.round);
    const auto now = found.find(recorded.turn);
    const std::string wrong = now == found.end() ? "did not run" : difference(recorded, now->second);
    same += wrong.empty() ? 1 : 0;
    if (wrong.empty() && !arguments.verbose) continue;
    result(fmt::format("{}: {}\n", name,
                       wrong.empty() ? fmt::format("the same {} tokens", recorded.tokens.size()) : wrong));
    if (wrong.empty() || now == found.end()) continue;
    result(fmt::format("  recorded: {}\n  now:      {}\n", printable(recorded.record.output, Lines::fold),
                       printable(now->second.record.output, Lines::fold)));
  }
  result(fmt::format("{} of {} turns are the same\n", same, journal.finished.size()));
  if (journal.finished.empty()) throw Failure(kInvalidFile, "the journal has no turns to compare with");
  return same == journal.finished.size() ? kOk : kVerificationFailed;
}

/// Both runs next to each other, as one HTML page.
int page_of_two(const CompareArguments& arguments) {
  const std::vector<std::string>& folders = arguments.folders;
  // Without a value the option reads as "true".
  const bool named = !arguments.html.empty() && arguments.html != "true";
  std::string command = fmt::format("baton compare {} {} --html", shell_word(folders[0]), shell_word(folders[1]));
  if (named) command += " " + shell_word(arguments.html);
  const std::string page =
      comparison_page(read_report(folders[0]), read_report(folders[1]), {folders[0], folders[1]}, command).str();
  if (interrupted().stop_requested()) throw Failure(kInterrupted, "interrupted; nothing was written");
  if (arguments.html == "-") {
    result(page);
    return kOk;
  }
  const fs::path path = named ? fs::path(arguments.html) : fs::path(folders.back()) / "comparison.html";
  write_page(path, page);
  result(path.string() + "\n");
  return kOk;
}

int compare(const CompareArguments& arguments, bool html) {
  const std::size_t expected = arguments.replay ? 1 : 2;
  if (arguments.folders.size() != expected)
    throw Failure(kUsage,
                  arguments.replay ? "--replay takes one recorded run" : "expected two recorded runs, or --replay");
  if (arguments.replay) return replay(arguments);
  return html ? page_of_two(arguments) : Diff(arguments.folders[0], arguments.folders[1]).print();
}

}  // namespace

void add_compare(CommandLine& line) {
  Verb* verb = line.add_verb("compare", "Compare two recorded runs, or one with itself run again");
  auto arguments = std::make_shared<CompareArguments>();
  verb->add_option("folders", arguments->folders, "Folders that 'baton run --record DIR' wrote")
      ->required()
      ->expected(1, 2)
      ->type_name("DIR");
  Option* html = verb->add_option("--html", arguments->html,
                                  "Make an HTML page of both runs; without a value comparison.html in the second; -: "
                                  "standard output")
                     ->type_name("FILE")
                     ->or_alone("");
  Option* replay =
      verb->add_flag("--replay", arguments->replay, "Run one recorded run again, and compare it token by token")
          ->excludes(html);
  arguments->engine.add_to(*verb);
  verb->add_option("--timeout", arguments->timeout, "With --replay: end the run after this time")
      ->type_name("60s")
      ->needs(replay);
  Option* quiet = verb->add_flag("-q,--quiet", arguments->quiet, "Print only results and errors");
  verb->add_flag("-v,--verbose", arguments->verbose, "With --replay: also name the turns that are the same")
      ->excludes(quiet);
  verb->footer(
      "Of two runs it prints settings, answers, times and reuse. Exit code 6: an input, an answer, an output or, with\n"
      "--replay, a turn differs. On the same machine with the same number of threads, and with exact methods on any,\n"
      "a run of a model is the same token for token; tools and time limits may make it differ. The engine's options\n"
      "count for --replay.\n\n"
      "Examples:\n"
      "  baton run team.yaml -i question=@q.txt --record runs/full --relay full\n"
      "  baton run team.yaml -i question=@q.txt --record runs/auto\n"
      "  baton compare runs/full runs/auto\n"
      "  baton compare runs/full runs/auto --html both.html\n"
      "  baton compare runs/auto --replay -v");
  verb->run([arguments, html] { return compare(*arguments, html->count() > 0); });
}

}  // namespace baton::cli
