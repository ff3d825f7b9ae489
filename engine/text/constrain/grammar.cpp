// SPDX-License-Identifier: Apache-2.0
// GrammarEmitter: expressions to the nodes of a Grammar (Thompson's construction), within limits of size.
#include "engine/text/constrain/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/random.h"

namespace baton::constrain {

class GrammarEmitter {
 public:
  GrammarEmitter(std::vector<Grammar::Node>& nodes, std::vector<Grammar::Counter>& counters,
                 std::vector<Grammar::Counts>& counts)
      : nodes_(nodes), counters_(counters), counts_(counts) {}

  /// Adds the nodes of a rule and returns its first. Throws ConstraintError when the grammar becomes too large.
  std::int32_t rule(const GrammarExpression& body);

 private:
  /// Each adds what leads from `from` to the node that it returns, and no edge back to `from`.
  std::int32_t emit(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_text(std::string_view bytes, std::int32_t from);
  std::int32_t emit_characters(const CodePointSet& set, std::int32_t from);
  std::int32_t emit_repeat(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_members(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_machine(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_written_out(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_counted(const GrammarExpression& expression, std::int32_t from);

  std::int32_t add_node();
  std::int32_t add_counter(std::int32_t low, std::int32_t high);
  /// Adds a step from `from` to a new node, which is returned.
  std::int32_t add_step(Grammar::Step step, std::int32_t counter, std::int32_t from);
  /// Adds a node behind `from` that can only be passed with these counts.
  std::int32_t add_gate(std::int32_t from, Grammar::Counts counts);
  Grammar::Node& at(std::int32_t index) { return nodes_[static_cast<std::size_t>(index)]; }
  void add_empty(std::int32_t from, std::int32_t to) { at(from).empties.push_back(to); }

  std::vector<Grammar::Node>& nodes_;
  std::vector<Grammar::Counter>& counters_;
  std::vector<Grammar::Counts>& counts_;
  std::size_t steps_ = 0;
};

namespace {

constexpr std::size_t kMaxNodes = 1u << 17;
constexpr std::size_t kMaxWrittenOut = 64;   // nodes of a repetition that is not counted
constexpr int kMaxBlanks = 2;                // in front of an answer
constexpr std::size_t kMaxSteps = 1u << 20;  // repetitions of what adds no node count too

}  // namespace

std::int32_t GrammarEmitter::add_node() {
  if (nodes_.size() == kMaxNodes)
    throw ConstraintError(
        fmt::format("it is too large: expected at most {} states, with its repetitions written out", kMaxNodes));
  nodes_.emplace_back();
  return static_cast<std::int32_t>(nodes_.size() - 1);
}

std::int32_t GrammarEmitter::rule(const GrammarExpression& body) {
  const std::int32_t start = add_node();
  at(emit(body, start)).ends = true;
  return start;
}

std::int32_t GrammarEmitter::emit(const GrammarExpression& expression, std::int32_t from) {
  using Kind = GrammarExpression::Kind;
  if (++steps_ > kMaxSteps) throw ConstraintError("it is too large with its repetitions written out");
  switch (expression.kind) {
    case Kind::text:
      return emit_text(expression.text, from);
    case Kind::characters:
      return emit_characters(expression.characters, from);
    case Kind::sequence:
      for (const ExpressionPtr& part : expression.parts) from = emit(*part, from);
      return from;
    case Kind::choice: {
      const std::int32_t end = add_node();
      for (const ExpressionPtr& part : expression.parts) add_empty(emit(*part, from), end);
      return end;
    }
    case Kind::repeat:
      return emit_repeat(expression, from);
    case Kind::members:
      return emit_members(expression, from);
    case Kind::call: {
      const std::int32_t end = add_node();
      at(from).calls.push_back({expression.rule, end});
      return end;
    }
    case Kind::machine:
      return emit_machine(expression, from);
    case Kind::ahead:
    case Kind::behind:
      throw ConstraintError("it asks for what stands around it");
  }
  return from;
}

std::int32_t GrammarEmitter::emit_text(std::string_view bytes, std::int32_t from) {
  for (const char byte : bytes) {
    const std::int32_t next = add_node();
    const auto value = static_cast<std::uint8_t>(byte);
    at(from).edges.push_back({value, value, next});
    from = next;
  }
  return from;
}

/// Sequences that end alike share the nodes of their ends.
std::int32_t GrammarEmitter::emit_characters(const CodePointSet& set, std::int32_t from) {
  const std::int32_t end = add_node();
  std::map<std::vector<ByteRange>, std::int32_t> behind{{{}, end}};
  for (const ByteRanges& ranges : utf8_ranges(set)) {
    std::int32_t target = end;
    std::vector<ByteRange> rest;
    for (int i = ranges.count - 1; i > 0; --i) {
      const ByteRange range = ranges.bytes[static_cast<std::size_t>(i)];
      rest.push_back(range);
      const auto [found, added] = behind.try_emplace(rest, 0);
      if (added) {
        found->second = add_node();
        at(found->second).edges.push_back({range.low, range.high, target});
      }
      target = found->second;
    }
    at(from).edges.push_back({ranges.bytes[0].low, ranges.bytes[0].high, target});
  }
  return end;
}

std::int32_t GrammarEmitter::add_counter(std::int32_t low, std::int32_t high) {
  counters_.push_back({low, high});
  return static_cast<std::int32_t>(counters_.size() - 1);
}

std::int32_t GrammarEmitter::add_step(Grammar::Step step, std::int32_t counter, std::int32_t from) {
  const std::int32_t node = add_node(), after = add_node();
  add_empty(from, node);
  at(node).step = step;
  at(node).counter = counter;
  at(node).after = after;
  return after;
}

std::int32_t GrammarEmitter::add_gate(std::int32_t from, Grammar::Counts counts) {
  const std::int32_t node = add_node();
  add_empty(from, node);
  at(node).counts = static_cast<std::int32_t>(counts_.size());
  counts_.push_back(std::move(counts));
  return node;
}

/// A long repetition is counted: its part stands there once.
std::int32_t GrammarEmitter::emit_repeat(const GrammarExpression& expression, std::int32_t from) {
  const std::int32_t copies = expression.high == kUnbounded ? expression.low : expression.high;
  if (copies <= 1) return emit_written_out(expression, from);
  const std::size_t nodes = nodes_.size(), counters = counters_.size(), counts = counts_.size();
  const std::int32_t begin = add_node(), end = emit_counted(expression, begin);
  if (static_cast<std::size_t>(copies) > kMaxWrittenOut ||
      static_cast<std::size_t>(copies) * (nodes_.size() - nodes) > kMaxWrittenOut) {
    add_empty(from, begin);
    return end;
  }
  nodes_.resize(nodes);
  counters_.resize(counters);
  counts_.resize(counts);
  return emit_written_out(expression, from);
}

std::int32_t GrammarEmitter::emit_written_out(const GrammarExpression& expression, std::int32_t from) {
  const GrammarExpression& part = *expression.parts[0];
  for (std::int32_t i = 0; i < expression.low; ++i) from = emit(part, from);
  const std::int32_t end = add_node();
  if (expression.high == kUnbounded) {
    add_empty(from, end);
    add_empty(emit(part, end), end);
    return end;
  }
  for (std::int32_t i = expression.low; i < expression.high; ++i) {
    add_empty(from, end);
    from = emit(part, from);
  }
  add_empty(from, end);
  return end;
}

/// What is counted is there at least once, so that a way past it is one of its own.
std::int32_t GrammarEmitter::emit_counted(const GrammarExpression& expression, std::int32_t from) {
  const std::int32_t counter = add_counter(expression.low, expression.high);
  const std::int32_t once = add_node(), again = add_node();
  add_empty(add_step(Grammar::Step::begin, counter, from), once);
  const bool bounded = expression.high != kUnbounded;
  const std::int32_t part = bounded ? add_gate(once, {{0, expression.high - 1}}) : once;
  add_empty(add_step(Grammar::Step::add, counter, emit(*expression.parts[0], part)), again);
  add_empty(again, once);
  const std::int32_t end = add_step(Grammar::Step::end, counter, again);
  if (expression.low == 0) add_empty(from, end);
  return end;
}

/// The counts before a step behind which there may be `counts`. Without an upper bound a count ends at the lower one.
Grammar::Counts before_step(const Grammar::Counts& counts, const GrammarExpression& bounds) {
  Grammar::Counts out;
  for (const GrammarExpression::Interval& one : counts) {
    const std::int32_t last = bounds.high == kUnbounded && one.high == bounds.low ? one.high : one.high - 1;
    if (last >= 0) out.push_back({std::max(one.low - 1, 0), last});
  }
  return out;
}

/// A step of the machine is counted if there is a bound. A step that leads to no end is not begun.
std::int32_t GrammarEmitter::emit_machine(const GrammarExpression& expression, std::int32_t from) {
  const bool counted = expression.low > 0 || expression.high != kUnbounded;
  const std::int32_t counter = counted ? add_counter(expression.low, expression.high) : -1;
  std::vector<std::int32_t> nodes;
  for (std::size_t i = 0; i < expression.states.size(); ++i) nodes.push_back(add_node());
  const std::int32_t last = add_node();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const GrammarExpression::State& state = expression.states[i];
    if (state.ends) add_empty(nodes[i], last);
    struct Ends {
      std::int32_t begin, behind;
    };
    std::map<std::int32_t, Ends> steps;  // by target: its ways share one step
    for (const auto& [way, target] : state.ways) {
      const auto [found, added] = steps.try_emplace(target);
      if (added) {
        const Grammar::Counts& counts = expression.states[static_cast<std::size_t>(target)].counts;
        const std::int32_t begin = counted ? add_gate(nodes[i], before_step(counts, expression)) : nodes[i];
        found->second = {begin, add_node()};
        const std::int32_t behind = found->second.behind;
        add_empty(counted ? add_step(Grammar::Step::add, counter, behind) : behind,
                  nodes[static_cast<std::size_t>(target)]);
      }
      const std::int32_t end = emit(*way, found->second.begin);
      add_empty(end, found->second.behind);
    }
  }
  add_empty(counted ? add_step(Grammar::Step::begin, counter, from) : from, nodes[0]);
  return counted ? add_step(Grammar::Step::end, counter, last) : last;
}

/// Two chains side by side: before and behind the first member that is there. A member stands once, behind the
/// separator or not.
std::int32_t GrammarEmitter::emit_members(const GrammarExpression& expression, std::int32_t from) {
  const auto [low, high] = std::pair(expression.low, expression.high);
  const bool counted = low > 0 || high != kUnbounded;
  const std::int32_t counter = counted ? add_counter(low, high) : -1;
  auto needed = static_cast<std::int32_t>(std::count(expression.optional.begin(), expression.optional.end(), false));
  const auto gate = [&](std::int32_t node, const Grammar::Counts& counts) {
    return counted && node >= 0 ? add_gate(node, counts) : node;
  };
  const auto add = [&](std::int32_t node) { return counted ? add_step(Grammar::Step::add, counter, node) : node; };
  std::int32_t none = counted ? add_step(Grammar::Step::begin, counter, from) : from, some = add_node();
  for (std::size_t i = 0; i < expression.parts.size(); ++i) {
    const bool optional = expression.optional[i];
    needed -= optional ? 0 : 1;
    const auto left = static_cast<std::int32_t>(expression.parts.size() - i - 1);
    const Grammar::Counts behind{
        {expression.more ? 0 : std::max(low - left, 0), high == kUnbounded ? low : high - needed}};
    const Grammar::Counts before = before_step(behind, expression);
    const std::int32_t member = add_node();
    if (none >= 0) add_empty(gate(none, before), member);
    add_empty(emit(*expression.between, gate(some, before)), member);
    const std::int32_t next = add_node();
    add_empty(add(emit(*expression.parts[i], member)), next);
    if (optional) {
      add_empty(gate(some, behind), next);
      none = gate(none, behind);
    } else {
      none = -1;
    }
    some = next;
  }
  if (expression.more) {
    const std::int32_t loop = add_node(), member = add_node();
    const Grammar::Counts before{{0, high == kUnbounded ? low : high - 1}};
    add_empty(some, loop);
    add_empty(emit(*expression.between, gate(loop, before)), member);
    if (none >= 0) add_empty(gate(none, before), member);
    add_empty(add(emit(*expression.more, member)), loop);
    some = loop;
  }
  const std::int32_t end = add_node();
  add_empty(some, end);
  if (none >= 0) add_empty(none, end);
  return counted ? add_step(Grammar::Step::end, counter, end) : end;
}

}  // namespace baton::constrain

namespace baton {
namespace {

constexpr std::size_t kMaxRules = 16'384;
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Grammar::Grammar(std::span<const constrain::Rule> rules, std::int32_t max_depth, Count count) : max_depth_(max_depth) {
  if (rules.size() > kMaxRules)
    throw ConstraintError(fmt::format("it has {} rules; expected at most {}", rules.size(), kMaxRules));
  constrain::GrammarEmitter emitter(nodes_, counters_, counts_);
  for (const constrain::Rule& rule : rules) {
    starts_.push_back(emitter.rule(*rule.body));
    weights_.push_back(rule.nests ? 1 : 0);
  }
  sources_.emplace_back(rules.begin(), rules.end());
  refuse_left_recursion(rules);
  find_needs();
  if (node(starts_[0]).need > max_depth_)
    throw ConstraintError(node(starts_[0]).need == kNever
                              ? "no text fulfils it"
                              : fmt::format("every text nests its rules more than {} deep", max_depth_));
  drop_dead_ends();
  if (count == Count::open) find_only_ends();
  find_classes();
}

Grammar::Grammar(const Grammar& one, const Grammar& other) : max_depth_(std::max(one.max_depth_, other.max_depth_)) {
  begin_union();
  add_to_union(one);
  add_to_union(other);
  find_classes();
}

std::shared_ptr<const Grammar> Grammar::behind_blanks() const {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (behind_blanks_ != nullptr) return behind_blanks_;
  auto grammar = std::shared_ptr<Grammar>(new Grammar);
  grammar->max_depth_ = max_depth_;
  grammar->begin_union();
  grammar->add_to_union(*this);
  const std::int32_t own = grammar->nodes_[0].empties.front();
  for (std::int32_t from = 0, blank = 0; blank < kMaxBlanks; ++blank) {
    const auto next = static_cast<std::int32_t>(grammar->nodes_.size());
    grammar->nodes_.emplace_back().need = grammar->nodes_[0].need;
    grammar->nodes_.back().empties.push_back(own);
    for (const char byte : {' ', '\n'})
      grammar->nodes_[static_cast<std::size_t>(from)].edges.push_back(
          {static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), next});
    from = next;
  }
  grammar->find_classes();
  return behind_blanks_ = std::move(grammar);
}

void Grammar::begin_union() {
  nodes_.emplace_back().need = kNever;
  starts_.push_back(0);
  weights_.push_back(1);
}

void Grammar::add_to_union(const Grammar& part) {
  const auto first_counter = static_cast<std::int32_t>(counters_.size()),
             first_counts = static_cast<std::int32_t>(counts_.size());
  weights_.insert(weights_.end(), part.weights_.begin(), part.weights_.end());
  counters_.insert(counters_.end(), part.counters_.begin(), part.counters_.end());
  counts_.insert(counts_.end(), part.counts_.begin(), part.counts_.end());
  unenforced_.insert(unenforced_.end(), part.unenforced_.begin(), part.unenforced_.end());
  sources_.insert(sources_.end(), part.sources_.begin(), part.sources_.end());
  const auto first_node = static_cast<std::int32_t>(nodes_.size()),
             first_rule = static_cast<std::int32_t>(starts_.size());
  nodes_[0].empties.push_back(first_node + part.starts_[0]);
  nodes_[0].need = std::min(nodes_[0].need, part.node(part.starts_[0]).need);
  for (const std::int32_t node : part.starts_) starts_.push_back(first_node + node);
  for (Node node : part.nodes_) {
    for (Edge& edge : node.edges) edge.target += first_node;
    for (std::int32_t& target : node.empties) target += first_node;
    for (Call& call : node.calls) call = {call.rule + first_rule, call.then + first_node};
    if (node.step != Step::none) {
      node.counter += first_counter;
      node.after += first_node;
    }
    if (node.counts >= 0) node.counts += first_counts;
    nodes_.push_back(std::move(node));
  }
}

/// Dijkstra's algorithm backwards from the ends of rules: the cost of a way is the deepest call on it.
void Grammar::find_needs() {
  struct Origin {
    std::int32_t node;
    std::int32_t rule;  // that is called on the way; -1: none
  };
  std::vector<std::vector<Origin>> origins(nodes_.size());       // for each node: from where it is reached
  std::vector<std::vector<Origin>> callers(starts_.size());      // for each rule; `rule` is the node behind the call
  std::vector<std::vector<std::int32_t>> begins(nodes_.size());  // rules that begin with the node
  for (std::size_t rule = 0; rule < starts_.size(); ++rule)
    begins[index(starts_[rule])].push_back(static_cast<std::int32_t>(rule));
  std::vector<std::vector<std::int32_t>> reached(1);  // by need
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto from = static_cast<std::int32_t>(i);
    Node& one = nodes_[i];
    one.need = kNever;
    for (const Edge& edge : one.edges) origins[index(edge.target)].push_back({from, -1});
    for (const std::int32_t target : one.empties) origins[index(target)].push_back({from, -1});
    if (one.step != Step::none) origins[index(one.after)].push_back({from, -1});
    for (const Call& call : one.calls) {
      origins[index(call.then)].push_back({from, call.rule});
      callers[index(call.rule)].push_back({from, call.then});
    }
    if (one.ends) reached[0].push_back(from);
  }
  const auto reach = [&](std::int32_t at, std::int32_t need) {
    if (nodes_[index(at)].need <= need) return;
    if (index(need) >= reached.size()) reached.resize(index(need) + 1);
    reached[index(need)].push_back(at);
  };
  for (std::size_t need = 0; need < reached.size(); ++need) {
    for (std::size_t next = 0; next < reached[need].size(); ++next) {  // the list grows
      const std::int32_t at = reached[need][next];
      const auto cost = static_cast<std::int32_t>(need);
      if (nodes_[index(at)].need <= cost) continue;
      nodes_[index(at)].need = cost;
      for (const Origin& origin : origins[index(at)]) {
        const std::int32_t inside = origin.rule < 0 ? 0 : nodes_[index(starts_[index(origin.rule)])].need;
        if (inside != kNever)
          reach(origin.node, origin.rule < 0 ? cost : std::max(cost, inside + weights_[index(origin.rule)]));
      }
      for (const std::int32_t rule : begins[index(at)]) {
        for (const Origin& caller : callers[index(rule)]) {
          const std::int32_t behind = nodes_[index(caller.rule)].need;
          if (behind != kNever) reach(caller.node, std::max(behind, cost + weights_[index(rule)]));
        }
      }
    }
  }
}

/// Removes nodes that lead nowhere, so that every text that was begun can end.
void Grammar::drop_dead_ends() {
  const auto dead = [this](std::int32_t at) { return node(at).need == kNever; };
  for (Node& one : nodes_) {
    std::erase_if(one.edges, [&](const Edge& edge) { return dead(edge.target); });
    std::erase_if(one.empties, dead);
    std::erase_if(one.calls, [&](const Call& call) { return dead(call.then) || dead(start(call.rule)); });
  }
}

/// Nodes from which only ends can be reached, beginning with those that lead nowhere.
void Grammar::find_only_ends() {
  std::vector<std::size_t> missing(nodes_.size(), 0);  // targets that are not known to be such nodes
  std::vector<std::vector<std::int32_t>> before(nodes_.size());
  std::vector<std::int32_t> todo;
  for (std::size_t at = 0; at < nodes_.size(); ++at) {
    const Node& one = nodes_[at];
    if (!one.edges.empty() || !one.calls.empty() || one.step != Step::none || !(one.ends || !one.empties.empty()))
      continue;
    missing[at] = one.empties.size();
    if (missing[at] == 0) todo.push_back(static_cast<std::int32_t>(at));
    for (const std::int32_t target : one.empties) before[index(target)].push_back(static_cast<std::int32_t>(at));
  }
  while (!todo.empty()) {
    const std::int32_t at = todo.back();
    todo.pop_back();
    nodes_[index(at)].only_ends = true;
    for (const std::int32_t earlier : before[index(at)]) {
      if (--missing[index(earlier)] == 0) todo.push_back(earlier);
    }
  }
}

/// A rule that calls itself before any byte was read would call itself for ever.
void Grammar::refuse_left_recursion(std::span<const constrain::Rule> rules) const {
  std::vector<bool> may_be_empty(rules.size(), false);
  std::vector<std::uint32_t> seen(nodes_.size(), 0);  // in which round
  std::uint32_t round = 0;
  std::vector<std::vector<std::int32_t>> first(rules.size());  // rules that are called before any byte
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rule = 0; rule < rules.size(); ++rule) {
      first[rule].clear();
      bool empty = false;
      std::vector<std::int32_t> todo{starts_[rule]};
      seen[index(starts_[rule])] = ++round;
      const auto visit = [&](std::int32_t at) {
        if (seen[index(at)] == round) return;
        seen[index(at)] = round;
        todo.push_back(at);
      };
      while (!todo.empty()) {
        const Node& at = node(todo.back());
        todo.pop_back();
        empty = empty || at.ends;
        for (const std::int32_t target : at.empties) visit(target);
        if (at.step != Step::none) visit(at.after);
        for (const Call& call : at.calls) {
          first[rule].push_back(call.rule);
          if (may_be_empty[index(call.rule)]) visit(call.then);
        }
      }
      if (empty && !may_be_empty[rule]) may_be_empty[rule] = changed = true;
    }
  }
  enum class Mark : std::uint8_t { none, open, done };
  std::vector<Mark> marks(rules.size(), Mark::none);
  for (std::size_t root = 0; root < rules.size(); ++root) {
    std::vector<std::pair<std::size_t, std::size_t>> path;  // rule, index of its next call
    if (marks[root] == Mark::none) path.emplace_back(root, 0);
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      marks[rule] = Mark::open;
      if (next == first[rule].size()) {
        marks[rule] = Mark::done;
        path.pop_back();
        continue;
      }
      const std::size_t called = index(first[rule][next++]);
      if (marks[called] == Mark::open)
        throw ConstraintError(fmt::format("rule '{}' is left-recursive: it begins with itself", rules[called].name));
      if (marks[called] == Mark::none) path.emplace_back(called, 0);
    }
  }
}

bool Grammar::may_be_at(const Node& node, std::int32_t count) const {
  if (node.counts < 0) return true;
  const Counts& all = counts_[index(node.counts)];
  const auto found = std::partition_point(all.begin(), all.end(), [&](const auto& one) { return one.high < count; });
  return found != all.end() && found->low <= count;
}

void Grammar::find_classes() {
  std::array<bool, 257> begins{};
  for (const Node& one : nodes_) {
    for (const Edge& edge : one.edges) begins[edge.low] = begins[edge.high + 1u] = true;
  }
  std::size_t current = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    classes_[byte] = static_cast<std::uint8_t>(current);
  }
  class_count_ = current + 1;
}

namespace {

constexpr std::size_t kMaxPlaces = 2048;  // in one state; more are an ambiguity that grows with the text
constexpr std::size_t kManyStates = 10'000;
constexpr std::size_t kCrowdedStates = 20'000;
constexpr std::size_t kMaxWork = 8'000'000;  // between two calls of clear(); a visit takes up to 0.2 microseconds
constexpr std::size_t kMaxStates = 100'000;  // between two calls of clear()
constexpr std::size_t kCrowdedBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxStateBytes = std::size_t{256} << 20;  // states between two calls of clear()

// The limit of checking a whole text, in visits.
constexpr std::size_t kPlacesPerByte = 16;
constexpr std::size_t kFreePlaces = 2'000'000;

/// The memory of a place, and of the frame that may be its own.
constexpr std::size_t kPlaceBytes = sizeof(GrammarPlace) + sizeof(GrammarFrame) + 2 * sizeof(void*);

using Stack = std::shared_ptr<const GrammarFrame>;

bool same(const Stack& a, const Stack& b) {
  const GrammarFrame *one = a.get(), *other = b.get();
  while (one != other) {
    if (one == nullptr || other == nullptr || one->hash != other->hash || one->then != other->then ||
        one->count != other->count)
      return false;
    one = one->below.get();
    other = other->below.get();
  }
  return true;
}

std::uint64_t hash_of(const Stack& stack) { return stack ? stack->hash : 0; }

std::uint64_t combined(std::uint64_t hash, std::uint64_t value) {
  return mixed_bits(hash ^ (value + 0x9E3779B97F4A7C15));
}

bool same(const GrammarPlaces& a, const GrammarPlaces& b) {
  return a.ends == b.ends && std::equal(a.places.begin(), a.places.end(), b.places.begin(), b.places.end(),
                                        [](const GrammarPlace& x, const GrammarPlace& y) {
                                          return x.node == y.node && same(x.stack, y.stack);
                                        });
}

}  // namespace

/// Collects the places that are reached without a byte.
class GrammarStates::Closure {
 public:
  explicit Closure(const Grammar& grammar) : grammar_(grammar) {}

  void add(std::int32_t node, Stack stack) {
    todo_.push_back({node, std::move(stack)});
    while (!todo_.empty()) {
      const GrammarPlace at = std::move(todo_.back());
      todo_.pop_back();
      visit(at);
    }
  }

  std::size_t work() const { return visits_; }

  std::shared_ptr<const GrammarPlaces> places() {
    auto out = std::make_shared<GrammarPlaces>();
    out->ends = ends_;
    for (auto& [hash, place] : seen_) {
      if (!grammar_.node(place.node).edges.empty()) out->places.push_back(place);
    }
    std::sort(out->places.begin(), out->places.end(), [](const GrammarPlace& a, const GrammarPlace& b) {
      return std::pair(a.node, hash_of(a.stack)) < std::pair(b.node, hash_of(b.stack));
    });
    out->hash = out->ends ? 1 : 0;
    for (const GrammarPlace& place : out->places)
      out->hash = combined(combined(out->hash, static_cast<std::uint64_t>(place.node)), hash_of(place.stack));
    return out;
  }

 private:
  static std::int32_t depth_of(const Stack& stack) { return stack ? stack->depth : 0; }

  void visit(const GrammarPlace& at) {
    if (++visits_ > kMaxWork) throw std::runtime_error("the answer's constraint is too ambiguous");
    const Grammar::Node& node = grammar_.node(at.node);
    if (depth_of(at.stack) + node.need > grammar_.max_depth()) return;  // it could not end within the depth
    if (node.counts >= 0 && !grammar_.may_be_at(node, at.stack->count)) return;
    const std::uint64_t hash = combined(static_cast<std::uint64_t>(at.node), hash_of(at.stack));
    for (auto [found, end] = seen_.equal_range(hash); found != end; ++found) {
      if (found->second.node == at.node && same(found->second.stack, at.stack)) return;
    }
    if (seen_.size() == 4 * kMaxPlaces) throw std::runtime_error("the answer's constraint is too ambiguous");
    seen_.emplace(hash, at);
    for (const std::int32_t target : node.empties) todo_.push_back({target, at.stack});
    for (const Grammar::Call& call : node.calls) enter(call, at.stack);
    if (node.step != Grammar::Step::none) count(node, at.stack);
    if (!node.ends) return;
    if (at.stack)
      todo_.push_back({at.stack->then, at.stack->below});
    else
      ends_ = true;
  }

  /// A call that is the last thing in its rule opens no frame, so that right recursion needs no depth.
  void enter(const Grammar::Call& call, const Stack& stack) {
    if (grammar_.node(call.then).only_ends) return todo_.push_back({grammar_.start(call.rule), stack});
    const std::int32_t depth = depth_of(stack), inside = depth + grammar_.weight(call.rule);
    if (depth + grammar_.node(call.then).need > grammar_.max_depth() || inside > grammar_.max_depth()) return;
    const std::uint64_t hash = combined(hash_of(stack), static_cast<std::uint64_t>(call.then));
    todo_.push_back({grammar_.start(call.rule),
                     std::make_shared<const GrammarFrame>(GrammarFrame{call.then, 0, inside, hash, stack})});
  }

  /// Beyond the lower bound of a count without an upper one nothing changes any more.
  void count(const Grammar::Node& node, const Stack& stack) {
    const Grammar::Counter& counter = grammar_.counter(node.counter);
    if (node.step == Grammar::Step::end) {
      if (stack->count >= counter.low) todo_.push_back({node.after, stack->below});
      return;
    }
    const bool begins = node.step == Grammar::Step::begin;
    const Stack& below = begins ? stack : stack->below;
    std::int32_t reached = begins ? 0 : stack->count + 1;
    if (counter.high == constrain::kUnbounded)
      reached = std::min(reached, counter.low);
    else if (reached > counter.high)
      return;
    const std::int32_t mark = -1 - node.counter;
    const std::uint64_t hash =
        combined(combined(hash_of(below), static_cast<std::uint64_t>(mark)), static_cast<std::uint64_t>(reached));
    todo_.push_back(
        {node.after, std::make_shared<const GrammarFrame>(GrammarFrame{mark, reached, depth_of(below), hash, below})});
  }

  const Grammar& grammar_;
  std::vector<GrammarPlace> todo_;
  std::unordered_multimap<std::uint64_t, GrammarPlace> seen_;
  std::size_t visits_ = 0;
  bool ends_ = false;
};

GrammarStates::GrammarStates(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {}

GrammarStates::State* GrammarStates::start() {
  Closure closure(*grammar_);
  closure.add(grammar_->start(0), nullptr);
  return find(closure.places());
}

GrammarStates::State* GrammarStates::find(std::shared_ptr<const GrammarPlaces> places) {
  for (auto [found, end] = by_hash_.equal_range(places->hash); found != end; ++found) {
    if (same(*found->second->places, *places)) return found->second;
  }
  if (places->places.size() > kMaxPlaces) throw std::runtime_error("the answer's constraint is too ambiguous");
  if (states_.size() == kMaxStates)
    throw std::runtime_error(fmt::format("the answer's constraint needs more than {} states in a step", kMaxStates));
  bytes_ += sizeof(State) + grammar_->classes() * sizeof(void*) + places->places.size() * kPlaceBytes;
  if (bytes_ > kMaxStateBytes)
    throw std::runtime_error(
        fmt::format("the answer's constraint needs more than {} MiB for the states of a step", kMaxStateBytes >> 20));
  State& state = states_.emplace_back();
  state.next.assign(grammar_->classes(), nullptr);
  state.id = static_cast<std::uint32_t>(states_.size() - 1);
  state.places = std::move(places);
  by_hash_.emplace(state.places->hash, &state);
  return &state;
}

GrammarStates::State* GrammarStates::make_next(State* state, std::uint8_t byte) {
  Closure closure(*grammar_);
  for (const GrammarPlace& place : state->places->places) {
    for (const Grammar::Edge& edge : grammar_->node(place.node).edges) {
      if (edge.low <= byte && byte <= edge.high) closure.add(edge.target, place.stack);
    }
  }
  work_ += closure.work();
  if (work_ > kMaxWork) throw std::runtime_error("the answer's constraint is too ambiguous: a step takes too long");
  State* next = find(closure.places());
  state->next[grammar_->byte_class(byte)] = next;
  return next;
}

void GrammarStates::find_most(State* state) {
  if (state->most != nullptr) return;
  std::unordered_map<State*, std::array<std::uint64_t, 2>> leads;
  for (unsigned byte = 0; byte < 128; ++byte) {
    State* target = next(state, static_cast<std::uint8_t>(byte));
    if (!target->dead()) leads[target][byte / 64] |= std::uint64_t{1} << (byte % 64);
  }
  int best = -1;
  for (const auto& [target, bytes] : leads) {
    const int count = std::popcount(bytes[0]) + std::popcount(bytes[1]);
    if (count < best || (count == best && target->id > state->most->id)) continue;
    best = count;
    state->most = target;
    state->to_most = bytes;
  }
  if (state->most == nullptr) {
    state->most = state;  // with no bytes
    return;
  }
  static const std::vector<constrain::ByteRanges> others =
      constrain::utf8_ranges(constrain::CodePointSet({{0, 0x7F}}).complement());
  state->others_to_most = std::ranges::all_of(others, [&](const constrain::ByteRanges& ranges) {
    return all_lead(state, std::span(ranges.bytes).first(static_cast<std::size_t>(ranges.count)), state->most);
  });
}

/// True if all texts of one byte of each range lead to a state.
bool GrammarStates::all_lead(State* from, std::span<const constrain::ByteRange> bytes, const State* to) {
  const auto [low, high] = bytes.front();
  for (unsigned value = low; value <= high; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    if (value > low && grammar_->byte_class(byte) == grammar_->byte_class(byte - 1)) continue;
    State* reached = next(from, byte);
    const bool leads = bytes.size() == 1 ? reached == to : !reached->dead() && all_lead(reached, bytes.subspan(1), to);
    if (!leads) return false;
  }
  return true;
}

const GrammarStates::FreeRun& GrammarStates::free_run(State* state) {
  static const FreeRun none;
  if (state->run != nullptr) return *state->run;
  if (states_.size() > kManyStates) return none;  // looking ahead would make many more
  find_most(state);
  FreeRun run{state->to_most, state->others_to_most, 1};
  // It goes on while at least half of the bytes stay: few longer texts are worth less than many short ones.
  const int enough = (std::popcount(run.ascii[0]) + std::popcount(run.ascii[1]) + 1) / 2;
  for (State* at = state->most; run.length < kMaxRun; ++run.length, at = at->most) {
    find_most(at);
    const std::array<std::uint64_t, 2> both{run.ascii[0] & at->to_most[0], run.ascii[1] & at->to_most[1]};
    if (enough == 0 || std::popcount(both[0]) + std::popcount(both[1]) < enough) break;
    run.ascii = both;
    run.others = run.others && at->others_to_most;
  }
  state->run = std::make_unique<const FreeRun>(run);
  return *state->run;
}

void GrammarStates::clear() {
  by_hash_.clear();
  states_.clear();
  work_ = bytes_ = 0;
}

bool GrammarStates::crowded() const {
  return states_.size() > kCrowdedStates || bytes_ > kCrowdedBytes || work_ > kMaxWork / 2;
}

bool accepts(const Grammar& grammar, std::string_view text) {
  // The states do not outlive the call, so they need not own the grammar.
  GrammarStates states(std::shared_ptr<const Grammar>(std::shared_ptr<const Grammar>(), &grammar));
  GrammarStates::State* state = states.start();
  std::size_t work = 0;  // before the last clear()
  for (const char byte : text) {
    state = states.next(state, static_cast<std::uint8_t>(byte));
    if (state->dead()) return false;
    if (work + states.work() > kPlacesPerByte * text.size() + kFreePlaces)
      throw std::runtime_error(
          fmt::format("the check by the grammar needs more steps than a text of {} bytes may cost", text.size()));
    if (!states.crowded()) continue;
    work += states.work();
    const std::shared_ptr<const GrammarPlaces> places = state->places;
    states.clear();
    state = states.find(places);
  }
  return state->places->ends;
}

}  // namespace baton
