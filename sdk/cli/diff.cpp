// SPDX-License-Identifier: Apache-2.0
// baton diff: what two recorded runs have in common and where they part.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"
#include "sdk/cli/verbs.h"
#include "sdk/report/data.h"

namespace baton::cli {
namespace {

constexpr int kShownColumns = 100;

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

}  // namespace

void add_diff(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("diff", "Compare two recorded runs: settings, answers, times, reuse");
  struct Folders {
    std::string first, second;
  };
  auto folders = std::make_shared<Folders>();
  verb->add_option("DIR1", folders->first, "The folder that 'baton run --record DIR' wrote")->required();
  verb->add_option("DIR2", folders->second, "Another one")->required();
  verb->footer(
      "Exit code 6: an input, an answer or an output differs.\n\n"
      "Example:\n"
      "  baton run team.yaml -i question=@q.txt --record runs/full --relay full\n"
      "  baton run team.yaml -i question=@q.txt --record runs/auto\n"
      "  baton diff runs/full runs/auto");
  verb->callback([folders, &action] { action = [folders] { return Diff(folders->first, folders->second).print(); }; });
}

}  // namespace baton::cli
