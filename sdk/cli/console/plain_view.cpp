// SPDX-License-Identifier: Apache-2.0
#include <baton/reuse_method.h>

#include <fmt/format.h>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"

namespace baton::cli {
namespace {

std::string safe(const std::string& text) { return printable(text, Lines::fold); }

class PlainView : public View {
 public:
  explicit PlainView(bool verbose) : verbose_(verbose) {}

  void on_event(const Event& event) override {
    std::visit([this](const auto& typed) { show(typed); }, event);
  }

 private:
  void show(const RunStarted& event) {
    note(fmt::format("{}: {} agent turn{}\n", safe(event.workflow), event.turns, event.turns == 1 ? "" : "s"));
  }
  void show(const AgentStarted& event) {
    note(fmt::format("{}: started, {} prompt tokens\n", turn_name(event.agent, event.round), event.prompt_tokens));
  }
  void show(const Prefill& event) {
    if (!verbose_) return;
    const double ahead =
        event.kv.entries > 0 ? static_cast<double>(event.kv.ahead) / static_cast<double>(event.kv.entries) : 0;
    note(fmt::format("{}: prefill {}, {:.0f} % of the KV reused, {:.0f} % computed ahead\n",
                     turn_name(event.agent, event.round), duration(event.prefill_ms), 100 * event.kv.reuse_rate,
                     100 * ahead));
  }
  void show(const Token&) {}
  void show(const ToolCalled& event) {
    if (event.tool == "ask") {
      note(fmt::format("{}: answered: {}\n", turn_name(event.agent, event.round), head(safe(event.result), 200)));
      return;
    }
    const std::string arguments = event.arguments.empty() ? "" : " " + head(safe(event.arguments), 100);
    note(fmt::format("{}: tool {}{} {} in {}{}\n", turn_name(event.agent, event.round), safe(event.tool), arguments,
                     event.ok ? "ran" : "failed", duration(event.wall_ms),
                     verbose_ || !event.ok ? ": " + head(safe(event.result), 200) : std::string()));
  }
  void show(const AgentFinished& event) {
    const AgentRecord& record = event.record;
    const std::string name = turn_name(record.agent, record.round);
    if (record.state == TurnState::ok && record.model.empty()) {
      note(fmt::format("{}: done\n", name));
    } else if (record.state == TurnState::ok) {
      note(fmt::format("{}: done, {} tokens at {:.1f}/s, first after {}\n", name, record.output_tokens,
                       record.tokens_per_s, duration(record.ttft_ms)));
    } else {
      note(fmt::format("{}: {}{}{}\n", name, name_of(record.state), record.error.empty() ? "" : ": ",
                       safe(record.error)));
    }
  }
  void show(const Relayed& event) {
    if (!verbose_) return;
    const ReuseMethod* method = find_reuse_method(event.slot.method);
    const bool ahead = method != nullptr && method->ahead;
    note(fmt::format("{} -> {}: {} by {}, {} of {} tokens {} ({})\n", event.from, turn_name(event.to, event.round),
                     event.slot.name, event.slot.method, ahead ? event.slot.ahead_tokens : event.slot.reused_tokens,
                     event.slot.tokens, ahead ? "ahead" : "reused", safe(event.slot.reason)));
  }
  void show(const Warning& event) { note(warning_line(event.message)); }
  void show(const Asked&) {}  // the runner itself asks
  void show(const RunFinished&) {}
  void show(const PrefillProgress& event) {
    if (!verbose_) return;
    note(fmt::format("{}: {} of {} prompt tokens\n", turn_name(event.agent, event.round), event.tokens,
                     event.prompt_tokens));
  }

  void show(const TentativeToken&) {}
  void show(const Confirmed& event) {
    if (!verbose_) return;
    note(fmt::format("{}: {} of {} tentative tokens confirmed\n", turn_name(event.agent, event.round), event.tokens,
                     event.tentative));
  }

  bool verbose_;
};

}  // namespace

std::unique_ptr<View> make_plain_view(bool verbose) { return std::make_unique<PlainView>(verbose); }

std::string turn_name(const std::string& agent, int round) {
  return round > 1 ? fmt::format("{}#{}", agent, round) : agent;
}

std::string turn_name(const AgentRecord& agent) {
  return agent.turn.empty() ? turn_name(agent.agent, agent.round) : agent.turn;
}

}  // namespace baton::cli
