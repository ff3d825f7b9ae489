// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "engine/base/clock.h"
#include "workflows/plan/topology.h"

namespace baton {
namespace {

constexpr std::size_t kMaxNodes = 256;            // in one round
constexpr std::size_t kMaxTurns = 4096;           // in all rounds
constexpr std::size_t kMaxPlanBytes = 64u << 20;  // for all prompts, without the values of slots, and of what else
                                                  // a turn copies from its agent
constexpr std::size_t kBytesOfPiece = 64;

/// Adds a piece; fixed text goes to that before it.
void append(PromptMessage& message, const PromptPiece& piece) {
  PromptPiece* last = message.pieces.empty() ? nullptr : &message.pieces.back();
  if (last != nullptr && piece.slot.empty() && last->slot.empty() && piece.data == last->data) {
    last->text += piece.text;
  } else {
    message.pieces.push_back(piece);
  }
}

/// A message as blocks that may be reordered: its items, and the turns of its loops.
class MessageBlocks {
 public:
  MessageBlocks(std::string role, bool free_order) : role_(std::move(role)), free_order_(free_order) {}

  PromptMessage& add() { return blocks_.emplace_back(); }
  bool is_free() const { return free_order_; }

  /// The message, neighbouring fixed text joined.
  PromptMessage joined() const {
    PromptMessage whole{role_, {}};
    for (const PromptMessage& block : blocks_) {
      for (const PromptPiece& piece : block.pieces) append(whole, piece);
    }
    return whole;
  }

  /// Reorders the blocks with placeholders of a message of free order, those with the least `known_after` first.
  /// Returns true when the order changed.
  template <typename KnownAfter>
  bool sort(const KnownAfter& known_after) {
    if (!free_order_) return false;
    std::vector<std::pair<std::pair<int, int>, PromptMessage>> movable;
    for (const PromptMessage& block : blocks_) {
      if (has_slot(block)) movable.emplace_back(known_after(block), block);
    }
    const auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
    if (std::is_sorted(movable.begin(), movable.end(), earlier)) return false;
    std::stable_sort(movable.begin(), movable.end(), earlier);
    auto next = movable.begin();
    for (PromptMessage& block : blocks_) {
      if (has_slot(block)) block = (next++)->second;
    }
    return true;
  }

 private:
  static bool has_slot(const PromptMessage& block) {
    return std::any_of(block.pieces.begin(), block.pieces.end(), [](const PromptPiece& p) { return !p.slot.empty(); });
  }
  std::string role_;
  std::vector<PromptMessage> blocks_;
  bool free_order_;
};

const GraphNode& node_at(const std::vector<GraphNode>& nodes, int index) {
  return nodes[static_cast<std::size_t>(index)];
}

/// The step whose output the agent's name stands for in place of this one's, `among` some, though it ran without seeing
/// it: both are news to their reader. Null: there is none.
const GraphNode* hidden_by(const std::vector<GraphNode>& nodes, int index, const std::vector<int>& among) {
  const GraphNode* last = nullptr;
  for (const int later : among) {
    if (later <= index || node_at(nodes, later).agent != node_at(nodes, index).agent) continue;
    const std::vector<int>& sees = node_at(nodes, later).sees;
    if (std::binary_search(sees.begin(), sees.end(), index)) return nullptr;
    last = &node_at(nodes, later);
  }
  return last;
}

/// The outputs that a loop shows: those of the agents of turns in order, each once, and those of the steps that the
/// agents' names do not stand for.
std::vector<Placeholder> peers_of(const std::vector<GraphNode>& nodes, const std::vector<int>& among) {
  std::vector<Placeholder> out;
  for (const int node : among) {
    const GraphNode& one = node_at(nodes, node);
    const bool is_hidden = one.spec != nullptr && hidden_by(nodes, node, among) != nullptr;
    const std::string step = is_hidden ? one.id : "";
    const auto same = [&](const Placeholder& other) { return other.id == one.agent && other.step == step; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back({Placeholder::Kind::agent, one.agent, 0, {}, step});
  }
  return out;
}

/// Notes steps whose outputs nothing reads, while something reads the output of a step that hides them.
void find_unread(const WorkflowSpec& spec, const std::vector<GraphNode>& nodes, std::vector<PlannedTurn>& turns) {
  std::set<std::string> read;  // steps
  const int count = static_cast<int>(nodes.size());
  const auto add = [&](const SlotSource& slot) {
    if (slot.turn >= 0 && slot.turn < count * spec.topology.rounds) read.insert(node_at(nodes, slot.turn % count).id);
  };
  for (const PlannedTurn& turn : turns) {
    std::for_each(turn.slots.begin(), turn.slots.end(), add);
    std::for_each(turn.when_reads.begin(), turn.when_reads.end(), add);
  }
  const PlaceholderNames names(spec);
  const Visibility visibility(spec, nodes);
  for (const auto& [name, pieces] : spec.outputs) {
    for (const TemplatePiece& piece : pieces) {
      const std::optional<Placeholder> known = piece.placeholder.empty() ? std::nullopt : names.find(piece.placeholder);
      if (!known || known->kind == Placeholder::Kind::input) continue;
      if (const std::optional<int> node = visibility.last_node_of(*known)) read.insert(node_at(nodes, *node).id);
    }
  }
  std::vector<int> all;
  for (int i = 0; i < count; ++i) all.push_back(i);
  for (int i = 0; i < count; ++i) {
    const GraphNode& node = node_at(nodes, i);
    const GraphNode* other = read.contains(node.id) ? nullptr : hidden_by(nodes, i, all);
    if (other == nullptr || !read.contains(other->id)) continue;
    turns[static_cast<std::size_t>(i)].unread = fmt::format(
        "nothing reads the output of step '{}': 'agent_{}_current' is that of step '{}'; "
        "'step_{}_current' is its name",
        node.id, node.agent, other->id, node.id);
  }
}

class PlanBuilder {
 public:
  PlanBuilder(const WorkflowSpec& spec, OutputGrammars& grammars, Diagnostics& diagnostics)
      : spec_(spec), topology_(spec.topology), names_(spec), grammars_(grammars), diagnostics_(diagnostics) {}

  std::vector<PlannedTurn> build() {
    if (const std::size_t nodes = std::max(topology_.agents.size(), topology_.nodes.size()); nodes > kMaxNodes) {
      too_large(fmt::format("expected at most {} turns in a round, found {}", kMaxNodes, nodes));
      return {};
    }
    nodes_ = expand_topology(spec_, diagnostics_);
    if (const std::size_t turns = nodes_.size() * static_cast<std::size_t>(topology_.rounds); turns > kMaxTurns)
      too_large(fmt::format("expected at most {} turns in all, found {}", kMaxTurns, turns));
    ends_ = ends_of_round();
    decision_ = decision();
    members_ = peers_of(nodes_, decision_.sees);

    const Visibility visibility(spec_, nodes_);
    if (!nodes_.empty()) {
      for (const GraphNode& node : nodes_) visibility.check(node, diagnostics_);
      if (!topology_.then.empty()) visibility.check(decision_, diagnostics_);
    }
    if (!diagnostics_.empty()) return {};  // also those found before: a name that means nothing has no source

    for (int round = 1; round <= topology_.rounds; ++round) {
      for (const GraphNode& node : nodes_) {
        if (plan_bytes_ <= kMaxPlanBytes) add(node, round, visibility);
      }
    }
    if (!topology_.then.empty() && plan_bytes_ <= kMaxPlanBytes) {
      add(decision_, topology_.rounds, visibility);
      turns_.back().decides = true;
    }
    if (topology_.kind == Topology::graph && plan_bytes_ <= kMaxPlanBytes) find_unread(spec_, nodes_, turns_);
    if (plan_bytes_ > kMaxPlanBytes)
      too_large(
          fmt::format("the prompts of all turns have more than {} MiB, with their stop texts, fallbacks and tools",
                      kMaxPlanBytes >> 20));
    return std::move(turns_);
  }

 private:
  void too_large(std::string message) { diagnostics_.error(topology_.where, "E0308", std::move(message)); }

  GraphNode decision() const {
    GraphNode node{topology_.then, topology_.then, nullptr, {}, {}};
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) node.sees.push_back(i);
    node.needs = node.sees;
    return node;
  }

  int index_of(int node, int round) const { return (round - 1) * static_cast<int>(nodes_.size()) + node; }

  void add(const GraphNode& node, int round, const Visibility& visibility) {
    const AgentSpec& agent = *spec_.agent(node.agent);
    PlannedTurn turn;
    turn.id = round == 1 || &node == &decision_ ? node.id : fmt::format("{}#{}", node.id, round);
    turn.agent = node.agent;
    turn.round = round;
    turn.tools = agent.tools;
    turn.calls = agent.calls;
    std::vector<MessageBlocks> blocks = messages(agent, node, round);
    turn.messages = joined(blocks);
    add_slots(turn, node, visibility);
    if (in_order_of_completion(blocks, turn)) {
      for (const SlotSource& slot : turn.slots) turn.written.push_back(slot.name);
      turn.messages = joined(blocks);
      turn.slots.clear();
      add_slots(turn, node, visibility);
    }
    if (node.spec != nullptr) turn.when = node.spec->when;
    if (turn.when && turn.when->expression) add_reads(turn, node, visibility);
    add_needs(turn, node, visibility);
    set_handling(turn, agent, node.spec);
    set_timeout(turn, agent.generation);
    if (agent.messages.empty()) {
      turn.max_tokens = 0;
      for (SlotSource& slot : turn.slots) slot.reason = "read by its tools";
    } else {
      set_generation(turn, agent.generation);
      set_template_variables(turn, agent);
    }
    set_constraint(turn, agent);
    turn.summary = summary_of(agent);
    plan_bytes_ += bytes_of_settings(turn);
    int depth = 0;
    for (const int need : turn.needs) depth = std::max(depth, depth_[static_cast<std::size_t>(need)]);
    depth_.push_back(depth + 1);
    turns_.push_back(std::move(turn));
  }

  /// Loops written out.
  std::vector<MessageBlocks> messages(const AgentSpec& agent, const GraphNode& node, int round) {
    std::vector<MessageBlocks> out;
    for (const MessageSpec& message : agent.messages) {
      MessageBlocks& blocks = out.emplace_back(message.role, message.free_order);
      const auto add = [&](const PromptItem& item, const Placeholder& peer, int history) {
        add_pieces(blocks.add(), item, peer, history);
      };
      for (const PromptItem& item : message.items) {
        if (plan_bytes_ > kMaxPlanBytes) return out;
        if (item.loop == PromptItem::Loop::none) {
          add(item, {}, 0);
        } else if (item.loop == PromptItem::Loop::peers) {
          for (const Placeholder& peer : peers_of(nodes_, node.sees)) add(item, peer, 0);
        } else if (round > 1) {
          for (const Placeholder& peer : members_) add(item, peer, 1);
        }
      }
    }
    return out;
  }

  /// The messages, neighbouring fixed text joined.
  static std::vector<PromptMessage> joined(const std::vector<MessageBlocks>& messages) {
    std::vector<PromptMessage> out;
    for (const MessageBlocks& message : messages) out.push_back(message.joined());
    return out;
  }
  /// Reorders blocks with placeholders, so that those known first come first. All turns sort in the same way, so that
  /// prompts that read the same outputs share a prefix. True when the order changed.
  bool in_order_of_completion(std::vector<MessageBlocks>& messages, const PlannedTurn& turn) const {
    const bool any_free =
        std::any_of(messages.begin(), messages.end(), [](const MessageBlocks& m) { return m.is_free(); });
    if (!any_free) return false;
    const auto slots = slots_by_name(turn);
    const auto known_after = [&](const PromptMessage& block) {
      std::pair<int, int> latest{0, -1};  // depth in the graph, step
      for (const PromptPiece& piece : block.pieces) {
        const SlotSource* slot = piece.slot.empty() ? nullptr : slots.at(piece.slot);
        if (slot == nullptr || slot->turn < 0) continue;
        const bool own = slot->turn == static_cast<int>(turns_.size());
        const int depth = own ? INT_MAX : depth_[static_cast<std::size_t>(slot->turn)];
        latest = std::max(latest, {depth, slot->turn});
      }
      return latest;
    };
    bool moved = false;
    for (MessageBlocks& message : messages) moved = message.sort(known_after) || moved;
    return moved;
  }

  void add_pieces(PromptMessage& message, const PromptItem& item, const Placeholder& peer, int history) {
    for (const TemplatePiece& piece : item.pieces) {
      plan_bytes_ += kBytesOfPiece;
      if (piece.placeholder == "it.output") {
        message.pieces.push_back({"", placeholder_name({peer.kind, peer.id, history, {}, peer.step})});
      } else if (piece.placeholder == "it.name") {
        add_text(message, peer.id);
      } else if (piece.placeholder == "it.role") {
        add_text(message, spec_.agent(peer.id)->role, spec_.agent(peer.id)->role_is_data);
      } else if (!piece.placeholder.empty()) {
        message.pieces.push_back({"", piece.placeholder});
      } else {
        add_text(message, piece.text, piece.data);
      }
    }
  }

  void add_text(PromptMessage& message, const std::string& text, bool data = false) {
    plan_bytes_ += text.size();
    if (text.empty()) return;
    append(message, {text, "", data});
  }

  void add_slots(PlannedTurn& turn, const GraphNode& node, const Visibility& visibility) const {
    std::unordered_set<std::string_view> added;
    const auto add_name = [&](const std::string& name) {
      if (!name.empty() && added.insert(name).second) turn.slots.push_back(source(name, turn.round, node, visibility));
    };
    for (const PromptMessage& message : turn.messages) {
      for (const PromptPiece& piece : message.pieces) add_name(piece.slot);
    }
    for (const ToolSpec& tool : turn.tools)
      tool.for_each_placeholder([&](const std::string& name, const SourceLocation&) { add_name(name); });
  }

  void add_reads(PlannedTurn& turn, const GraphNode& node, const Visibility& visibility) const {
    std::unordered_set<std::string_view> added;
    for (const ValueExpression::Name& name : turn.when->expression->names()) {
      const std::optional<Placeholder> placeholder = names_.find(name.name);
      if (!placeholder || placeholder->kind == Placeholder::Kind::input || !added.insert(name.name).second) continue;
      turn.when_reads.push_back(source(name.name, turn.round, node, visibility));
    }
  }

  SlotSource source(const std::string& name, int round, const GraphNode& node, const Visibility& visibility) const {
    const Placeholder placeholder = *names_.find(name);
    SlotSource out;
    out.name = name;
    out.reason = "full prefill";
    if (placeholder.kind == Placeholder::Kind::input) {
      out.kind = SlotSource::Kind::input;
      return out;
    }
    const bool own_tools = placeholder.kind == Placeholder::Kind::condition;
    const bool output = placeholder.kind == Placeholder::Kind::agent;
    // Without a prompt, an output is what the tools returned.
    const bool result = own_tools || (output && spec_.agent(placeholder.id)->messages.empty());
    const bool answer = placeholder.has_members();
    const bool thinking = placeholder.kind == Placeholder::Kind::thinking;
    out.kind = result     ? SlotSource::Kind::tool_result
               : answer   ? SlotSource::Kind::agent_answer
               : thinking ? SlotSource::Kind::agent_thinking
                          : SlotSource::Kind::agent_output;
    if (placeholder.history == 0) {
      const bool own = own_tools && placeholder.id == node.agent;
      out.turn = own ? static_cast<int>(turns_.size()) : index_of(*visibility.node_of(placeholder, node), round);
    } else if (placeholder.history < round) {
      out.turn = index_of(*visibility.last_node_of(placeholder), round - placeholder.history);
    } else {
      out.kind = SlotSource::Kind::empty;
      out.reason = "before the first round";
    }
    return out;
  }

  /// Declared edges, what the slots and the condition read, and the end of the round before.
  void add_needs(PlannedTurn& turn, const GraphNode& node, const Visibility& visibility) const {
    std::set<int> needs;
    for (const int need : node.needs) needs.insert(index_of(need, turn.round));
    for (const SlotSource& slot : turn.slots) {
      if (slot.turn >= 0 && slot.turn != static_cast<int>(turns_.size())) needs.insert(slot.turn);
    }
    for (const SlotSource& read : turn.when_reads) {
      if (read.turn >= 0) needs.insert(read.turn);
    }
    if (turn.when && !turn.when->expression)
      needs.insert(index_of(*visibility.node_of(turn.when->agent, node), turn.round));
    const bool waits_in_round = !needs.empty() && *needs.rbegin() >= index_of(0, turn.round);
    if (turn.round > 1 && !waits_in_round) {  // the others follow from these
      for (const int last : ends_) needs.insert(index_of(last, turn.round - 1));
    }
    turn.needs.assign(needs.begin(), needs.end());
  }

  /// The turns that no other turn of the round needs: the round is over when they are.
  std::vector<int> ends_of_round() const {
    std::set<int> waited_for;
    for (const GraphNode& node : nodes_) waited_for.insert(node.needs.begin(), node.needs.end());
    std::vector<int> ends;
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (!waited_for.contains(i)) ends.push_back(i);
    }
    return ends;
  }

  static void set_handling(PlannedTurn& turn, const AgentSpec& agent, const NodeSpec* own) {
    turn.on_error = agent.on_error;
    turn.on_empty = agent.on_empty;
    turn.tells_errors = agent.tells_errors;
    turn.fallback = agent.fallback;
    turn.retry = agent.retry;
    turn.exact = agent.exact;
    turn.remember = agent.remember;
    turn.overflow = agent.overflow;
    if (own == nullptr) return;
    turn.on_error = own->on_error.value_or(turn.on_error);
    turn.fallback = own->fallback.value_or(turn.fallback);
    turn.retry = own->retry.value_or(turn.retry);
  }

  /// Whoever is asked may need longer than a model, so that only a limit of the step's own counts.
  void set_timeout(PlannedTurn& turn, const GenerationSpec& own) const {
    const std::optional<Milliseconds> common = turn.asks() ? std::nullopt : spec_.defaults.timeout;
    turn.timeout = std::min(own.timeout.value_or(common.value_or(turn.timeout)), kMaxWait);
  }

  /// Of all that may be long.
  static std::size_t bytes_of_settings(const PlannedTurn& turn) {
    std::size_t bytes = turn.fallback.size() + (turn.when ? turn.when->matches.size() : 0) +
                        turn.when_reads.size() * sizeof(SlotSource);
    for (const std::string& stop : turn.stop) bytes += sizeof(std::string) + stop.size();
    for (const TemplatePiece& piece : turn.retry.feedback) bytes += kBytesOfPiece + piece.text.size();
    for (const ToolSpec& tool : turn.tools) {
      bytes += sizeof tool;
      for (const auto& [name, value] : tool.options) bytes += kBytesOfPiece + name.size() + value.size();
      for (const auto& [name, text] : tool.filled)
        bytes += text.pieces.size() * kBytesOfPiece + tool.options.at(name).size();
    }
    return bytes;
  }

  /// The agent's are over those of its model.
  void set_template_variables(PlannedTurn& turn, const AgentSpec& agent) const {
    for (const ModelSpec& model : spec_.models) {
      if (model.name == turn.model) turn.template_variables = model.template_variables;
    }
    for (const auto& [name, value] : agent.template_variables) {
      std::erase_if(turn.template_variables, [&known = name](const auto& other) { return other.first == known; });
      turn.template_variables.emplace_back(name, value);
    }
  }

  /// All turns of an agent share it.
  std::shared_ptr<const PlannedTurn> summary_of(const AgentSpec& agent) {
    const SummarySpec& wanted = agent.summary;
    if (agent.overflow != Overflow::summarise || (wanted.agent.empty() && wanted.model.empty())) return nullptr;
    const auto [found, added] = summary_of_.try_emplace(agent.id);
    if (!added) return found->second;
    const std::string owner = fmt::format("agent '{}': overflow", agent.id);
    auto writer = std::make_shared<PlannedTurn>();
    AgentSpec any;
    any.generation.model = wanted.model;
    const AgentSpec* by = wanted.agent.empty() ? &any : spec_.agent(wanted.agent);
    if (by == nullptr) return nullptr;  // which was reported
    if (by != &any && by->messages.empty()) {
      diagnostics_.error(wanted.where, "E0409",
                         fmt::format("{}: agent '{}' has no prompt, so that it writes nothing", owner, by->id));
      return nullptr;
    }
    writer->id = writer->agent = wanted.agent;
    for (const MessageSpec& message : by->messages) {
      if (message.role == "system") writer->messages.push_back(system_message(message, owner, *by));
    }
    set_generation(*writer, by->generation);
    if (by == &any) {  // settings of `defaults` are those of agents
      writer->sampling = {};
      writer->stop.clear();
    }
    if (!by->generation.max_tokens) writer->max_tokens = kSummaryTokens;
    set_template_variables(*writer, *by);
    writer->think.enabled = false;
    return found->second = std::move(writer);
  }

  PromptMessage system_message(const MessageSpec& message, const std::string& owner, const AgentSpec& by) {
    PromptMessage out{"system", {}};
    for (const PromptItem& item : message.items) {
      add_pieces(out, item, {Placeholder::Kind::agent, by.id}, 0);
      for (std::size_t i = 0; i < item.pieces.size(); ++i) {
        const std::string& name = item.pieces[i].placeholder;
        const std::optional<Placeholder> known = name.empty() ? std::nullopt : names_.find(name);
        if (name.empty() || (known && known->kind == Placeholder::Kind::input)) continue;
        diagnostics_.error(item.place(i), "E0304",
                           fmt::format("{}: agent '{}' writes summaries, for which its system message has '{}'; only "
                                       "inputs are known there",
                                       owner, by.id, name));
      }
    }
    return out;
  }

  void set_generation(PlannedTurn& turn, const GenerationSpec& own) const {
    const auto choose = [](const auto& first, const auto& second, auto otherwise) {
      return first ? *first : second.value_or(otherwise);
    };
    const GenerationSpec& defaults = spec_.defaults;
    turn.model = choose(own.model, defaults.model, spec_.models.front().name);
    turn.served = std::any_of(spec_.models.begin(), spec_.models.end(),
                              [&](const ModelSpec& model) { return model.name == turn.model && model.served(); });
    turn.max_tokens = choose(own.max_tokens, defaults.max_tokens, turn.max_tokens);
    turn.stop = choose(own.stop, defaults.stop, turn.stop);
    turn.think = own.think.or_else(defaults.think);
    SamplingParams& sampling = turn.sampling;
    sampling.temperature = choose(own.temperature, defaults.temperature, sampling.temperature);
    sampling.top_k = choose(own.top_k, defaults.top_k, sampling.top_k);
    sampling.top_p = choose(own.top_p, defaults.top_p, sampling.top_p);
    sampling.min_p = choose(own.min_p, defaults.min_p, sampling.min_p);
    sampling.repetition_penalty =
        choose(own.repetition_penalty, defaults.repetition_penalty, sampling.repetition_penalty);
    sampling.presence_penalty = choose(own.presence_penalty, defaults.presence_penalty, sampling.presence_penalty);
    sampling.frequency_penalty = choose(own.frequency_penalty, defaults.frequency_penalty, sampling.frequency_penalty);
    sampling.seed = choose(own.seed, defaults.seed, sampling.seed);
  }

  /// All turns of an agent share its grammar.
  void set_constraint(PlannedTurn& turn, const AgentSpec& agent) {
    const auto [found, added] = grammar_of_.try_emplace(agent.id);
    if (added) {
      try {
        found->second = grammars_.get(agent.output);
      } catch (const ConstraintError& error) {
        diagnostics_.error(agent.output.where, agent.output.schema.empty() ? "E0413" : "E0414",
                           fmt::format("agent '{}': output: {}", agent.id, error.what()));
      }
    }
    turn.grammar = found->second;
    turn.enforce = turn.grammar != nullptr && agent.output.enforce && !agent.output.choose && !agent.messages.empty();
    if (turn.enforce) {
      for (const std::string& note : turn.grammar->unenforced()) turn.unenforced.push_back("output: " + note);
    }
    turn.unenforced.insert(turn.unenforced.end(), agent.calls_unenforced.begin(), agent.calls_unenforced.end());
    if (agent.output.choose) turn.choices = agent.output.texts;
    if (added && turn.served && agent.output.choose)
      diagnostics_.error(agent.output.where, "E0409",
                         fmt::format("agent '{}': 'choose' needs the probabilities of whole texts, which the server of "
                                     "model '{}' does not tell",
                                     agent.id, turn.model),
                         "'enum' decodes one of the texts");
    const bool calls = turn.calls != nullptr && turn.calls->limits().enforce;
    if (turn.enforce || calls || !turn.choices.empty()) turn.stop.clear();  // those of `defaults`
  }

  const WorkflowSpec& spec_;
  const TopologySpec& topology_;
  PlaceholderNames names_;
  OutputGrammars& grammars_;
  Diagnostics& diagnostics_;
  std::vector<GraphNode> nodes_;
  std::vector<int> ends_;
  std::vector<Placeholder> members_;  // members of a round, in the order of their turns
  GraphNode decision_;                // sees all of them; runs if the workflow has a `then`
  std::vector<PlannedTurn> turns_;
  std::map<std::string, std::shared_ptr<const Grammar>> grammar_of_;      // the output, by agent
  std::map<std::string, std::shared_ptr<const PlannedTurn>> summary_of_;  // who writes summaries, by agent
  std::vector<int> depth_;  // for each step the longest chain of turns that ends with it
  std::size_t plan_bytes_ = 0;
};

}  // namespace

std::vector<PlannedTurn> build_turns(const WorkflowSpec& spec, OutputGrammars& grammars, Diagnostics& diagnostics) {
  return PlanBuilder(spec, grammars, diagnostics).build();
}

}  // namespace baton
