// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "agents/mcp/server.h"
#include "workflows/format/placeholder.h"

namespace baton {
namespace {

/// Turns as bits.
class TurnSet {
 public:
  explicit TurnSet(std::size_t turns) : bits_((turns + 63) / 64) {}
  void add(int turn) { word(turn) |= bit(turn); }
  void add(const TurnSet& other) {
    for (std::size_t w = 0; w < bits_.size(); ++w) bits_[w] |= other.bits_[w];
  }
  bool has(int turn) const { return (bits_[static_cast<std::size_t>(turn) / 64] & bit(turn)) != 0; }
  /// True when all turns of the set but `but` are in `other`.
  bool within(const TurnSet& other, int but) const {
    for (std::size_t w = 0; w < bits_.size(); ++w) {
      const std::uint64_t allowed = static_cast<std::size_t>(but) / 64 == w ? bit(but) : 0;
      if ((bits_[w] & ~(other.bits_[w] | allowed)) != 0) return false;
    }
    return true;
  }

 private:
  static std::uint64_t bit(int turn) { return std::uint64_t{1} << static_cast<std::size_t>(turn) % 64; }
  std::uint64_t& word(int turn) { return bits_[static_cast<std::size_t>(turn) / 64]; }

  std::vector<std::uint64_t> bits_;
};

/// For each turn the turns that are over when it begins.
std::vector<TurnSet> ancestors_of(const std::vector<PlannedTurn>& turns) {
  std::vector<TurnSet> out;
  for (const PlannedTurn& turn : turns) {
    TurnSet& own = out.emplace_back(turns.size());
    for (const int need : turn.needs) {
      own.add(out[static_cast<std::size_t>(need)]);
      own.add(need);
    }
  }
  return out;
}

/// The turns whose text stands before a slot.
struct TurnsBefore {
  explicit TurnsBefore(std::size_t turns) : set(turns) {}
  void add(int turn) {
    if (turn < 0 || set.has(turn)) return;
    set.add(turn);
    in_order.push_back(turn);
  }

  TurnSet set;
  std::vector<int> in_order;
};

class Forecast {
 public:
  explicit Forecast(std::vector<PlannedTurn>& turns) : turns_(turns), ancestors_(ancestors_of(turns)) {}

  void fill(std::size_t index) {
    PlannedTurn& turn = turns_[index];
    if (!turn.has_prompt()) return;
    std::string never;  // why nothing from here on is known before the turn begins
    if (turn.needs.empty()) {
      never = "the first of its run: there is no step to compute it in";
    } else if (turn.when) {
      never = "its turn has a condition, so nothing is computed ahead";
    }
    if (never.empty() && !turn.written.empty()) {
      std::vector<std::string> names;
      for (const SlotSource& slot : turn.slots) names.push_back(slot.name);
      turn.order = fmt::format("{}; {} of its answers are mirrored, {} as written ({})", fmt::join(names, ", "),
                               mirrored(turn, names), mirrored(turn, turn.written), fmt::join(turn.written, ", "));
    }
    TurnsBefore before(turns_.size());
    for (SlotSource& slot : turn.slots) {
      if (slot.kind == SlotSource::Kind::empty) continue;
      const bool own = slot.kind == SlotSource::Kind::tool_result && slot.turn == static_cast<int>(index);
      if (never.empty() && own) {
        slot.reason = "known only when its tools have run";
        never = fmt::format("behind {}, which is known only when its tools have run", slot.name);
      } else if (!never.empty()) {
        slot.reason = never;
      } else {
        slot.method = &lockstep_method();
        slot.reason = reason(turn, slot, before);
      }
      before.add(slot.turn);
    }
  }

 private:
  std::string id(int turn) const { return turns_[static_cast<std::size_t>(turn)].id; }

  /// Answers that can be mirrored while they are decoded, with the slots in this order.
  int mirrored(const PlannedTurn& turn, const std::vector<std::string>& order) const {
    int count = 0;
    const auto slots = slots_by_name(turn);
    TurnsBefore before(turns_.size());
    for (const std::string& name : order) {
      const SlotSource& slot = *slots.at(name);
      if (slot.kind == SlotSource::Kind::agent_output && turns_[static_cast<std::size_t>(slot.turn)].is_written() &&
          follows_all(slot.turn, before))
        ++count;
      before.add(slot.turn);
    }
    return count;
  }

  bool follows(int turn, int earlier) const {
    return earlier == turn || ancestors_[static_cast<std::size_t>(turn)].has(earlier);
  }
  bool follows_all(int turn, const TurnsBefore& before) const {
    return before.set.within(ancestors_[static_cast<std::size_t>(turn)], turn);
  }

  std::string reason(const PlannedTurn& turn, const SlotSource& slot, const TurnsBefore& before) const {
    if (slot.turn < 0 ? !before.in_order.empty() : !follows_all(slot.turn, before)) {
      const int first = *std::find_if(before.in_order.begin(), before.in_order.end(),
                                      [&](int earlier) { return slot.turn < 0 || !follows(slot.turn, earlier); });
      return fmt::format("computed ahead once {}, which stands before it, has ended", id(first));
    }
    if (slot.kind == SlotSource::Kind::input) return "computed ahead while others decode";
    const bool by_tools =
        slot.kind == SlotSource::Kind::agent_output && !turns_[static_cast<std::size_t>(slot.turn)].is_written();
    if (slot.kind == SlotSource::Kind::tool_result || by_tools)
      return fmt::format("computed ahead once the tools of {} have run", id(slot.turn));
    if (slot.kind == SlotSource::Kind::agent_answer)
      return fmt::format("computed ahead once {}, whose answer it is, has ended", id(slot.turn));
    if (turns_[static_cast<std::size_t>(slot.turn)].model != turn.model)
      return fmt::format("computed ahead once {}, of another model, has ended", id(slot.turn));
    return fmt::format("mirrored while {} decodes", id(slot.turn));
  }

  std::vector<PlannedTurn>& turns_;
  std::vector<TurnSet> ancestors_;
};

/// Fills in method and reason of every slot for the method lockstep, in the turns of which `ahead` is true. `turns`: a
/// topological order.
void forecast_ahead(std::vector<PlannedTurn>& turns, const std::function<bool(const PlannedTurn& turn)>& ahead) {
  Forecast forecast(turns);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (ahead(turns[i])) forecast.fill(i);
  }
}

/// True if slots of one kind and turn may still have different texts.
bool has_own_text(const SlotSource& slot) {
  return slot.kind == SlotSource::Kind::input || slot.kind == SlotSource::Kind::agent_answer;
}

/// True for an output that a model writes, and for an answer that is the whole output.
bool is_decoded(const Plan& plan, const SlotSource& slot) {
  if (slot.kind != SlotSource::Kind::agent_output && slot.kind != SlotSource::Kind::agent_answer) return false;
  const PlannedTurn& author = plan.turns[static_cast<std::size_t>(slot.turn)];
  if (!author.is_written() || slot.kind == SlotSource::Kind::agent_output) return author.is_written();
  const AgentSpec* agent = plan.spec->agent(author.agent);
  return !slot.is_member() && agent != nullptr && agent->output.constrains() && agent->output.enforce;
}

/// The first turns that show each value, of those that were passed.
class FirstTurns {
 public:
  explicit FirstTurns(const Method& method) : any_model_(reads_other_models(method)) {}

  /// The turn whose KV of the slot a turn after those that were passed can have: its author, or the first that shows
  /// it. Null: there is none.
  const PlannedTurn* source_of(const Plan& plan, const PlannedTurn& reader, const SlotSource& slot) const {
    if (is_decoded(plan, slot)) return &plan.turns[static_cast<std::size_t>(slot.turn)];
    const auto first = first_.find(value_of(reader, slot));
    return first == first_.end() ? nullptr : &plan.turns[first->second];
  }

  void pass(const Plan& plan, std::size_t index) {
    for (const SlotSource& slot : plan.turns[index].slots) {
      if (!is_decoded(plan, slot) && slot.kind != SlotSource::Kind::empty)
        first_.try_emplace(value_of(plan.turns[index], slot), index);
    }
  }

 private:
  using Value = std::tuple<SlotSource::Kind, int, std::string, std::string>;  // kind, turn, name, model

  /// Equal if shows_source() says so, and, unless the method hands KV over between models, the model is the same.
  Value value_of(const PlannedTurn& turn, const SlotSource& slot) const {
    return {slot.kind, slot.turn, has_own_text(slot) ? slot.name : "", any_model_ ? "" : turn.model};
  }

  bool any_model_;
  std::map<Value, std::size_t> first_;
};

/// If the method hands the slot over, fills in the slot's method and reason.
void forecast_hand_over(const Plan& plan, const FirstTurns& before, const PlannedTurn& reader, SlotSource& slot) {
  const PlannedTurn* source = before.source_of(plan, reader, slot);
  if (source == nullptr) {
    if (!computes_ahead(*plan.reuse.method)) slot.reason = "computed here first";
    return;
  }
  const bool between = source->model != reader.model;
  if (between && !reads_other_models(*plan.reuse.method)) {
    if (!computes_ahead(*plan.reuse.method)) slot.reason = fmt::format("decoded by {}, of another model", source->id);
    return;
  }
  const std::string otherwise =
      computes_ahead(*plan.reuse.method) && !slot.reason.empty() ? "; if exact: " + slot.reason : "";
  slot.method = &segment_method(plan.reuse);
  slot.reason = fmt::format("{} by {}{}{}", is_decoded(plan, slot) ? "decoded" : "computed", source->id,
                            between ? ", of another model" : "", otherwise);
}

/// Forecasts how each placeholder is handed over, as far as the plan can tell: lengths, memory and, with auto, the
/// model's profile decide in the run.
void forecast(Plan& plan) {
  const Method& method = *plan.reuse.method;
  forecast_ahead(plan.turns, [&](const PlannedTurn& turn) { return computes_ahead(*plan.reuse_of(turn).method); });
  const bool segments = takes_segments(plan.reuse);
  if (!segments && (computes_ahead(method) || !reuses_prefixes(method))) return;
  FirstTurns before(method);
  for (std::size_t i = 0; i < plan.turns.size(); ++i) {
    PlannedTurn& turn = plan.turns[i];
    if (!turn.has_prompt() || (turn.served && segments)) continue;
    for (SlotSource& slot : turn.slots) {
      if (slot.kind == SlotSource::Kind::empty) continue;
      if (!segments) {
        slot.reason = "exact where the prompt begins like one before it";
      } else if (!turn.exact || !computes_ahead(method)) {
        forecast_hand_over(plan, before, turn, slot);
      }
    }
    if (segments) before.pass(plan, i);
  }
}

/// The group of a reader, up to the last layer that one of the models needs whose answers it reads, and the larger
/// groups that all of them have.
void choose_group(const Plan& plan, const PlannedTurn& reader, ReuseOptions& options) {
  std::optional<std::vector<std::int32_t>> common;
  std::int32_t end = 0;
  for (const SlotSource& slot : reader.slots) {
    if (slot.kind != SlotSource::Kind::agent_output) continue;
    const auto found = plan.larger_ends.find({plan.turns[static_cast<std::size_t>(slot.turn)].model, reader.model});
    if (found == plan.larger_ends.end()) continue;
    const std::vector<std::int32_t>& ends = found->second;
    end = std::max(end, ends.front());
    std::vector<std::int32_t> both;
    if (common)
      std::set_intersection(common->begin(), common->end(), ends.begin(), ends.end(), std::back_inserter(both));
    common = common ? std::move(both) : ends;
  }
  if (!common) return;
  std::erase_if(*common, [&](std::int32_t larger) { return larger <= end; });
  options.range = LayerRange::group(options.range.start, end);
  options.larger_ends = std::move(*common);
}

/// Fills in what differs if a server has the KV.
void describe_server(const Plan& plan, PlannedTurn& turn) {
  const Method& method = *plan.reuse.method;
  const std::string replaced = hands_over(method) && !decides(method)
                                   ? fmt::format("; {} needs the KV, which the server keeps", method.name)
                                   : std::string();
  for (SlotSource& slot : turn.slots) {
    if (slot.kind == SlotSource::Kind::empty) continue;
    slot.reason += "; in the server's prefix cache, exact up to its numerics" + replaced;
  }
}

}  // namespace

bool SlotSource::is_member() const {
  if (kind != Kind::agent_answer) return false;
  const std::optional<Placeholder> placeholder = parse_placeholder(name);
  return placeholder && (placeholder->kind == Placeholder::Kind::probabilities || !placeholder->path.empty());
}

bool shows_source(const PlannedTurn& turn, const SlotSource& source) {
  return std::any_of(turn.slots.begin(), turn.slots.end(), [&](const SlotSource& slot) {
    if (slot.turn != source.turn) return false;
    const bool is_output = source.kind == SlotSource::Kind::agent_output;
    if (is_output && slot.kind == SlotSource::Kind::agent_answer) return !slot.is_member();  // it may be the output
    return slot.kind == source.kind && (!has_own_text(source) || slot.name == source.name);
  });
}

const SlotSource* PlannedTurn::slot(const std::string& name) const {
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const SlotSource& slot) { return slot.name == name; });
  return found == slots.end() ? nullptr : &*found;
}

std::unordered_map<std::string_view, const SlotSource*> slots_by_name(const PlannedTurn& turn) {
  std::unordered_map<std::string_view, const SlotSource*> out;
  for (const SlotSource& slot : turn.slots) out.try_emplace(slot.name, &slot);
  return out;
}

int Plan::last_turn_of(const std::string& agent, int round) const {
  for (int i = static_cast<int>(turns.size()) - 1; i >= 0; --i) {
    const PlannedTurn& turn = turns[static_cast<std::size_t>(i)];
    if (turn.agent == agent && turn.round == round) return i;
  }
  return -1;
}

ReuseOptions Plan::reuse_of(const PlannedTurn& turn) const {
  ReuseOptions options = reuse;
  if (!larger_ends.empty()) choose_group(*this, turn, options);
  if (turn.served && hands_over(*options.method)) options.method = &lockstep_method();  // which auto comes to
  if (turn.exact && uses_levels(*options.method)) options.exactness = Exactness::exact_reader;
  return options;
}

Plan make_plan(std::shared_ptr<const WorkflowSpec> spec, std::vector<PlannedTurn> turns) {
  Plan plan;
  plan.turns = std::move(turns);
  plan.reuse = spec->relay.options;
  plan.reuse.method = spec->relay.method;
  plan.relay = plan.reuse.method->name;
  plan.reuse.record = takes_segments(plan.reuse);
  plan.rounds = spec->topology.rounds;
  plan.spec = std::move(spec);
  forecast(plan);
  for (PlannedTurn& turn : plan.turns) {
    if (turn.served) describe_server(plan, turn);
  }
  return plan;
}

// The expanded graph for people and programs: ascii, mermaid, dot, json.

namespace {

struct Edge {
  int from = 0;
  int to = 0;
  std::vector<std::string> slots;  // placeholders that carry the output; none: the edge is only an order
};

std::vector<Edge> edges_of(const Plan& plan, int to) {
  const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(to)];
  std::vector<Edge> edges;
  for (const int need : turn.needs) edges.push_back({need, to, {}});
  for (const SlotSource& slot : turn.slots) {
    const auto need = std::lower_bound(turn.needs.begin(), turn.needs.end(), slot.turn);
    if (need != turn.needs.end() && *need == slot.turn)
      edges[static_cast<std::size_t>(need - turn.needs.begin())].slots.push_back(slot.name);
  }
  return edges;
}

/// The end of a round, which all turns of the next one wait for. With many turns it is a node of the graph: edges from
/// each turn to each would be as many as the square of the turns.
struct Barrier {
  std::vector<int> from;  // the turns that end the round
  std::vector<int> to;
};

constexpr std::size_t kMaxEnds = 8;  // turns that end a round, with edges of their own

/// Barriers by round, from 1.
std::map<int, Barrier> barriers_of(const Plan& plan) {
  std::map<int, Barrier> ends;
  std::vector<bool> awaited(plan.turns.size(), false);  // in its own round
  for (const PlannedTurn& turn : plan.turns) {
    for (const int need : turn.needs) {
      const auto at = static_cast<std::size_t>(need);
      if (!turn.decides && plan.turns[at].round == turn.round) awaited[at] = true;
    }
  }
  for (std::size_t i = 0; i < plan.turns.size(); ++i) {
    if (!awaited[i] && !plan.turns[i].decides) ends[plan.turns[i].round].from.push_back(static_cast<int>(i));
  }
  std::erase_if(ends, [](const auto& one) { return one.second.from.size() <= kMaxEnds; });
  for (std::size_t i = 0; i < plan.turns.size(); ++i) {
    const PlannedTurn& turn = plan.turns[i];
    const auto before = ends.find(turn.round - 1);
    if (before == ends.end() || turn.decides) continue;
    const std::vector<int>& from = before->second.from;
    if (std::includes(turn.needs.begin(), turn.needs.end(), from.begin(), from.end()))
      before->second.to.push_back(static_cast<int>(i));
  }
  std::erase_if(ends, [](const auto& one) { return one.second.to.empty(); });
  return ends;
}

/// The edges to a turn that no barrier stands for. Sets `round` to the barrier that the turn waits for; 0: none.
std::vector<Edge> edges_of(const Plan& plan, const std::map<int, Barrier>& barriers, int to, int& round) {
  std::vector<Edge> edges = edges_of(plan, to);
  const auto before = barriers.find(plan.turns[static_cast<std::size_t>(to)].round - 1);
  round = 0;
  if (before == barriers.end()) return edges;
  const auto& [from, all] = before->second;
  if (!std::binary_search(all.begin(), all.end(), to)) return edges;
  round = before->first;
  std::erase_if(edges, [&ends = from](const Edge& edge) {
    return edge.slots.empty() && std::binary_search(ends.begin(), ends.end(), edge.from);
  });
  return edges;
}

std::vector<Edge> edges_of(const Plan& plan, const std::map<int, Barrier>& barriers) {
  std::vector<Edge> edges;
  int round = 0;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    for (Edge& edge : edges_of(plan, barriers, i, round)) edges.push_back(std::move(edge));
  }
  return edges;
}

const std::string& id_of(const Plan& plan, int turn) { return plan.turns[static_cast<std::size_t>(turn)].id; }
const std::string& role_of(const Plan& plan, const PlannedTurn& turn) { return plan.spec->agent(turn.agent)->role; }

std::string condition_text(const ConditionSpec& condition) {
  if (condition.expression) return condition.expression->source();
  return fmt::format("{} {} /{}/", condition.agent, condition.negate ? "does not match" : "matches", condition.matches);
}

/// Describes what a turn does besides its prompt: its tools, its calls, and the condition on which it runs.
std::vector<std::string> notes_of(const PlannedTurn& turn) {
  std::vector<std::string> notes;
  for (const ToolSpec& tool : turn.tools) {
    if (tool.tool == kAskTool) {
      notes.emplace_back("asks the host");
    } else if (tool.tool == kMcpTool) {
      notes.push_back(fmt::format("server {}", tool.options.at("server")));
    } else {
      notes.push_back(fmt::format("tool {}{}", tool.tool, tool.from.empty() ? "" : " on " + tool.from));
    }
  }
  if (turn.calls) {
    for (const ToolSchema& tool : turn.calls->schemas()) notes.push_back(fmt::format("may call {}", tool.name));
    for (const ServerTools& server : turn.calls->servers())
      notes.push_back(fmt::format("may call tools of server {}", server.server));
  }
  if (turn.when) notes.push_back(fmt::format("when {}", condition_text(*turn.when)));
  return notes;
}

/// Returns the lines of a node in a drawing: its name, its role if that says more, and the notes.
std::vector<std::string> label_of(const Plan& plan, const PlannedTurn& turn) {
  std::vector<std::string> lines = {turn.id};
  if (const std::string& role = role_of(plan, turn); role != turn.agent) lines.push_back(role);
  for (std::string& note : notes_of(turn)) lines.push_back(std::move(note));
  return lines;
}

/// Of each round the indices of its first and its last turn, without the decision.
std::vector<std::pair<int, int>> rounds_of(const Plan& plan) {
  std::vector<std::pair<int, int>> rounds;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    if (turn.decides) continue;
    if (static_cast<int>(rounds.size()) < turn.round) rounds.emplace_back(i, i);
    rounds.back().second = i;
  }
  return rounds;
}

std::string title(const Plan& plan) {
  const TopologySpec& topology = plan.spec->topology;
  std::string out =
      fmt::format("{}: {}, {} agent{}, {} round{}", plan.spec->name, name_of(topology.kind), topology.agents.size(),
                  topology.agents.size() == 1 ? "" : "s", plan.rounds, plan.rounds == 1 ? "" : "s");
  if (!topology.then.empty()) out += ", then " + topology.then;
  return out + fmt::format(", relay {}", plan.relay);
}

/// Turns that start together, within one round: one more than the highest level they wait for.
std::vector<int> levels_of(const Plan& plan) {
  std::vector<int> levels;
  for (const PlannedTurn& turn : plan.turns) {
    int level = 1;
    for (const int need : turn.needs) {
      if (plan.turns[static_cast<std::size_t>(need)].round == turn.round)
        level = std::max(level, levels[static_cast<std::size_t>(need)] + 1);
    }
    levels.push_back(level);
  }
  return levels;
}

/// "analyst, inspector#2": the turns whose output a turn reads, and separately those that it only waits for.
std::string ascii_edges(const Plan& plan, const std::map<int, Barrier>& barriers, int index) {
  std::vector<std::string> given, awaited;
  int round = 0;
  for (const Edge& edge : edges_of(plan, barriers, index, round))
    (edge.slots.empty() ? awaited : given).push_back(id_of(plan, edge.from));
  if (round > 0) awaited.push_back(fmt::format("all of round {}", round));
  std::string out;
  if (!given.empty()) out += fmt::format("  <-- {}", fmt::join(given, ", "));
  if (!awaited.empty())
    out += fmt::format("  {}{}", given.empty() ? "... after " : "(and after ", fmt::join(awaited, ", "));
  if (!awaited.empty() && !given.empty()) out += ")";
  return out;
}

std::string ascii(const Plan& plan) {
  std::size_t width = 0;
  for (const PlannedTurn& turn : plan.turns) width = std::max(width, turn.id.size());
  const std::vector<int> levels = levels_of(plan);
  const std::map<int, Barrier> barriers = barriers_of(plan);
  std::string out = title(plan) + "\n";
  int round = 0, level = 0;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    if (turn.decides) {
      out += "\nthen\n";
      level = 0;
    } else if (turn.round != round) {
      out += fmt::format("\nround {}\n", turn.round);
      level = 0;
    }
    const int own_level = levels[static_cast<std::size_t>(i)];
    out += turn.decides ? "  *" : own_level == level ? "   " : fmt::format("{:3}", own_level);
    level = own_level;
    round = turn.round;
    const std::string edges = ascii_edges(plan, barriers, i);
    out += edges.empty() ? fmt::format("  {}\n", turn.id) : fmt::format("  {:<{}}{}\n", turn.id, width, edges);
    for (const std::string& note : notes_of(turn)) out += fmt::format("       {}\n", note);
    for (const std::string& note : turn.unenforced) out += fmt::format("       not enforced: {}\n", note);
  }
  if (plan.spec->topology.until)
    out += fmt::format("\nthe rounds end once {}\n", condition_text(*plan.spec->topology.until));
  return out;
}

/// Text in double quotes for mermaid, which reads HTML and signs such as #quot; there.
std::string mermaid_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '<' || c == '>' || c == '&') {
      out += c == '"' ? "#quot;" : c == '<' ? "#lt;" : c == '>' ? "#gt;" : "#amp;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

/// Text in double quotes for dot.
std::string dot_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

std::string joined(const std::vector<std::string>& lines, std::string (*escaped)(const std::string&), const char* end) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : end) + escaped(line);
  return out;
}

std::string mermaid(const Plan& plan) {
  std::string out = "flowchart TD\n";
  int round = 0;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    const bool boxed = plan.rounds > 1 && !turn.decides;
    if (round > 0 && (!boxed || turn.round != round)) {
      out += "  end\n";
      round = 0;
    }
    if (boxed && round == 0) {
      out += fmt::format("  subgraph round_{0} [\"round {0}\"]\n", turn.round);
      round = turn.round;
    }
    out += fmt::format("  {}s{}{}\"{}\"{}\n", boxed ? "  " : "", i, turn.decides ? "{{" : "[",
                       joined(label_of(plan, turn), mermaid_text, "<br/>"), turn.decides ? "}}" : "]");
  }
  if (round > 0) out += "  end\n";
  const std::map<int, Barrier> barriers = barriers_of(plan);
  for (const Edge& edge : edges_of(plan, barriers))
    out += fmt::format("  s{} {} s{}\n", edge.from, edge.slots.empty() ? "-.->" : "-->", edge.to);
  for (const auto& [of, barrier] : barriers) {
    out += fmt::format("  b{0}((\"round {0} is over\"))\n", of);
    for (const int from : barrier.from) out += fmt::format("  s{} -.-> b{}\n", from, of);
    for (const int to : barrier.to) out += fmt::format("  b{} -.-> s{}\n", of, to);
  }
  if (!plan.spec->topology.until) return out;
  const std::string unless = mermaid_text("unless " + condition_text(*plan.spec->topology.until));
  for (int i = 1; i < plan.rounds; ++i)
    out += fmt::format("  round_{} -.->{} round_{}\n", i, i == 1 ? "|\"" + unless + "\"|" : "", i + 1);
  return out;
}

std::string dot(const Plan& plan) {
  std::string out = fmt::format("digraph \"{}\" {{\n  rankdir=LR;\n  compound=true;\n  node [shape=box];\n",
                                dot_text(plan.spec->name));
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    out += fmt::format("  s{} [label=\"{}\"{}];\n", i, joined(label_of(plan, turn), dot_text, "\\n"),
                       turn.decides ? ", shape=diamond" : "");
  }
  const std::vector<std::pair<int, int>> rounds = rounds_of(plan);
  for (std::size_t r = 0; rounds.size() > 1 && r < rounds.size(); ++r) {
    out += fmt::format("  subgraph cluster_{0} {{ label=\"round {0}\";", r + 1);
    for (int i = rounds[r].first; i <= rounds[r].second; ++i) out += fmt::format(" s{};", i);
    out += " }\n";
  }
  const std::map<int, Barrier> barriers = barriers_of(plan);
  for (const Edge& edge : edges_of(plan, barriers))
    out += fmt::format("  s{} -> s{}{};\n", edge.from, edge.to, edge.slots.empty() ? " [style=dashed]" : "");
  for (const auto& [of, barrier] : barriers) {
    out += fmt::format("  b{0} [label=\"round {0} is over\", shape=point];\n", of);
    for (const int from : barrier.from) out += fmt::format("  s{} -> b{} [style=dashed];\n", from, of);
    for (const int to : barrier.to) out += fmt::format("  b{} -> s{} [style=dashed];\n", of, to);
  }
  for (std::size_t r = 1; plan.spec->topology.until && r < rounds.size(); ++r) {
    const std::string unless = dot_text("unless " + condition_text(*plan.spec->topology.until));
    out += fmt::format("  s{} -> s{} [ltail=cluster_{}, lhead=cluster_{}, style=dotted{}];\n", rounds[r - 1].second,
                       rounds[r].first, r, r + 1, r == 1 ? ", label=\"" + unless + "\"" : "");
  }
  return out + "}\n";
}

nlohmann::ordered_json json_of(const Plan& plan, int index) {
  const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(index)];
  auto slots = nlohmann::ordered_json::array();
  for (const SlotSource& slot : turn.slots) {
    static constexpr const char* kKinds[] = {"input", "agent_output", "agent_answer", "tool_result", "empty"};
    nlohmann::ordered_json one = {{"name", slot.name},
                                  {"kind", kKinds[static_cast<int>(slot.kind)]},
                                  {"method", slot.method->name},
                                  {"reason", slot.reason}};
    if (slot.turn >= 0) one["turn"] = id_of(plan, slot.turn);
    slots.push_back(std::move(one));
  }
  nlohmann::ordered_json out = {
      {"id", turn.id},           {"agent", turn.agent}, {"role", role_of(plan, turn)}, {"round", turn.round},
      {"decides", turn.decides}, {"model", turn.model}, {"slots", std::move(slots)}};
  if (turn.when) out["when"] = condition_text(*turn.when);
  return out;
}

std::string json(const Plan& plan) {
  auto turns = nlohmann::ordered_json::array(), edges = nlohmann::ordered_json::array();
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) turns.push_back(json_of(plan, i));
  const std::map<int, Barrier> barriers = barriers_of(plan);
  for (const Edge& edge : edges_of(plan, barriers)) {
    edges.push_back({{"from", id_of(plan, edge.from)}, {"to", id_of(plan, edge.to)}, {"slots", edge.slots}});
  }
  nlohmann::ordered_json out = {{"schema", 1},
                                {"workflow", plan.spec->name},
                                {"topology", name_of(plan.spec->topology.kind)},
                                {"relay", plan.relay},
                                {"rounds", plan.rounds}};
  if (plan.spec->topology.until) out["until"] = condition_text(*plan.spec->topology.until);
  out["turns"] = std::move(turns);
  out["edges"] = std::move(edges);
  const auto ids = [&](const std::vector<int>& of) {
    auto list = nlohmann::ordered_json::array();
    for (const int turn : of) list.push_back(id_of(plan, turn));
    return list;
  };
  for (const auto& [round, barrier] : barriers)
    out["barriers"].push_back({{"round", round}, {"from", ids(barrier.from)}, {"to", ids(barrier.to)}});
  return out.dump(2) + "\n";
}

}  // namespace

std::string format_graph(const Plan& plan, const std::string& format) {
  if (format == "ascii") return ascii(plan);
  if (format == "mermaid") return mermaid(plan);
  if (format == "dot") return dot(plan);
  if (format == "json") return json(plan);
  throw std::invalid_argument(
      fmt::format("unknown graph format '{}'; expected one of ascii, mermaid, dot, json", format));
}

}  // namespace baton
