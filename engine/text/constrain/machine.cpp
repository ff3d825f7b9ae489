// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/constrain/regex_reader.h"

namespace baton::constrain {
namespace {

constexpr std::size_t kMaxMachineStates = 4096;
constexpr std::size_t kMaxPartStates = 8192;        // before the machine is deterministic, with repetitions written out
constexpr std::size_t kMaxMachineWork = 4'000'000;  // of making it deterministic
constexpr std::size_t kMaxCountWork = 50'000'000;   // of finding the lengths of a machine's texts

[[noreturn]] void fail_large() { throw ConstraintError("it is too large to be combined with what else must hold"); }

CodePointSet common(const CodePointSet& a, const CodePointSet& b) {
  CodePointSet out;
  auto one = a.ranges().begin(), other = b.ranges().begin();
  while (one != a.ranges().end() && other != b.ranges().end()) {
    const CodePointRange both{std::max(one->low, other->low), std::min(one->high, other->high)};
    if (both.low <= both.high) out.add(both);
    (one->high < other->high ? one : other)++;
  }
  return out;
}

/// The parts of an expression as a machine in which several ways may fit.
class OpenMachine {
 public:
  struct State {
    std::vector<std::pair<CodePointSet, std::int32_t>> ways;
    std::vector<std::int32_t> empties;
  };

  explicit OpenMachine(const GrammarExpression& expression) {
    add();
    end_ = emit(expression, 0);
  }

  const State& state(std::int32_t index) const { return states_[static_cast<std::size_t>(index)]; }
  std::int32_t end() const { return end_; }
  std::size_t size() const { return states_.size(); }

 private:
  using Kind = GrammarExpression::Kind;

  std::int32_t add() {
    if (states_.size() == kMaxPartStates) fail_large();
    states_.emplace_back();
    return static_cast<std::int32_t>(states_.size() - 1);
  }
  State& at(std::int32_t index) { return states_[static_cast<std::size_t>(index)]; }

  std::int32_t step(std::int32_t from, CodePointSet set) {
    const std::int32_t next = add();
    at(from).ways.emplace_back(std::move(set), next);
    return next;
  }

  std::int32_t emit(const GrammarExpression& expression, std::int32_t from) {
    switch (expression.kind) {
      case Kind::text:
        for (std::size_t i = 0; i < expression.text.size();) {
          const utf8::CodePoint c = utf8::at(expression.text, i);
          from = step(from, CodePointSet{{c.value, c.value}});
          i += c.bytes;
        }
        return from;
      case Kind::characters:
        return step(from, expression.characters);
      case Kind::sequence:
        for (const ExpressionPtr& part : expression.parts) from = emit(*part, from);
        return from;
      case Kind::choice: {
        const std::int32_t end = add();
        for (const ExpressionPtr& part : expression.parts) {
          const std::int32_t last = emit(*part, from);
          at(last).empties.push_back(end);
        }
        return end;
      }
      case Kind::repeat:
        return emit_repeat(expression, from);
      case Kind::members:
      case Kind::call:
      case Kind::machine:
        break;
    }
    throw ConstraintError("it has parts that are no characters");
  }

  std::int32_t emit_repeat(const GrammarExpression& expression, std::int32_t from) {
    const GrammarExpression& part = *expression.parts[0];
    for (std::int32_t i = 0; i < expression.low; ++i) from = emit(part, from);
    const std::int32_t end = add();
    if (expression.high == kUnbounded) {
      at(from).empties.push_back(end);
      const std::int32_t last = emit(part, end);
      at(last).empties.push_back(end);
      return end;
    }
    for (std::int32_t i = expression.low; i < expression.high; ++i) {
      at(from).empties.push_back(end);
      from = emit(part, from);
    }
    at(from).empties.push_back(end);
    return end;
  }

  std::vector<State> states_;
  std::int32_t end_ = 0;
};

using StateSet = std::vector<std::int32_t>;

/// All states that are reached without a character, sorted.
StateSet closure(const OpenMachine& machine, StateSet todo, std::size_t& work) {
  std::set<std::int32_t> seen(todo.begin(), todo.end());
  while (!todo.empty()) {
    const std::int32_t at = todo.back();
    todo.pop_back();
    if (++work > kMaxMachineWork) fail_large();
    for (const std::int32_t next : machine.state(at).empties) {
      if (seen.insert(next).second) todo.push_back(next);
    }
  }
  return {seen.begin(), seen.end()};
}

/// What the characters lead to: sets that do not overlap, and the states behind each.
std::map<StateSet, CodePointSet> ways_of(const OpenMachine& machine, const StateSet& members, std::size_t& work) {
  std::set<char32_t> begins;  // of ranges in which all characters lead to the same states
  for (const std::int32_t member : members) {
    for (const auto& [set, target] : machine.state(member).ways) {
      for (const CodePointRange& range : set.ranges()) {
        begins.insert(range.low);
        begins.insert(range.high + 1);
      }
    }
  }
  std::map<char32_t, StateSet> targets;
  for (const std::int32_t member : members) {
    for (const auto& [set, target] : machine.state(member).ways) {
      for (const CodePointRange& range : set.ranges()) {
        for (auto at = begins.find(range.low); at != begins.end() && *at <= range.high; ++at) {
          if (++work > kMaxMachineWork) fail_large();
          targets[*at].push_back(target);
        }
      }
    }
  }
  std::map<StateSet, CodePointSet> out;
  for (auto& [begin, states] : targets) {
    std::sort(states.begin(), states.end());
    states.erase(std::unique(states.begin(), states.end()), states.end());
    const auto end = begins.upper_bound(begin);
    out[states].add({begin, end == begins.end() ? begin : *end - 1});
  }
  return out;
}

}  // namespace

CharacterMachine::CharacterMachine(std::vector<State> states) : states_(std::move(states)) { drop_dead_ends(); }

CharacterMachine::CharacterMachine(const ExpressionPtr& expression) {
  const OpenMachine machine(*expression);
  std::size_t work = 0;
  std::map<StateSet, std::int32_t> known;
  std::deque<const StateSet*> todo;
  const auto find = [&](StateSet members) {
    const auto [found, added] = known.try_emplace(std::move(members), static_cast<std::int32_t>(states_.size()));
    if (added) {
      if (states_.size() == kMaxMachineStates) fail_large();
      State& state = states_.emplace_back();
      state.ends = std::binary_search(found->first.begin(), found->first.end(), machine.end());
      todo.push_back(&found->first);
    }
    return found->second;
  };
  find(closure(machine, {0}, work));
  for (std::size_t at = 0; !todo.empty(); ++at) {
    const StateSet& members = *todo.front();
    todo.pop_front();
    for (auto& [targets, set] : ways_of(machine, members, work)) {
      const std::int32_t target = find(closure(machine, targets, work));
      auto& ways = states_[at].ways;
      const auto same = std::find_if(ways.begin(), ways.end(), [&](const Way& way) { return way.target == target; });
      if (same != ways.end())
        same->characters.add(set);
      else
        ways.push_back({set, target});
    }
  }
  drop_dead_ends();
}

void CharacterMachine::drop_dead_ends() {
  std::vector<std::vector<std::int32_t>> before(states_.size());
  std::vector<std::int32_t> numbers(states_.size(), -1), todo;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    for (const Way& way : states_[i].ways)
      before[static_cast<std::size_t>(way.target)].push_back(static_cast<std::int32_t>(i));
    if (states_[i].ends) todo.push_back(static_cast<std::int32_t>(i));
  }
  for (const std::int32_t at : todo) numbers[static_cast<std::size_t>(at)] = 0;
  while (!todo.empty()) {
    const auto at = static_cast<std::size_t>(todo.back());
    todo.pop_back();
    for (const std::int32_t earlier : before[at]) {
      if (std::exchange(numbers[static_cast<std::size_t>(earlier)], 0) < 0) todo.push_back(earlier);
    }
  }
  std::vector<State> left;
  if (!states_.empty() && numbers[0] == 0) {
    std::int32_t next = 0;
    for (std::int32_t& number : numbers) number = number == 0 ? next++ : -1;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (numbers[i] < 0) continue;
      State& state = left.emplace_back(std::move(states_[i]));
      std::erase_if(state.ways, [&](const Way& way) { return numbers[static_cast<std::size_t>(way.target)] < 0; });
      for (Way& way : state.ways) way.target = numbers[static_cast<std::size_t>(way.target)];
    }
  }
  states_ = std::move(left);
}

CharacterMachine CharacterMachine::both(const CharacterMachine& other) const {
  if (empty() || other.empty()) return CharacterMachine(std::vector<State>());
  std::vector<State> out;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known;
  std::deque<std::pair<std::int32_t, std::int32_t>> todo;
  std::size_t work = 0;
  const auto find = [&](std::pair<std::int32_t, std::int32_t> pair) {
    const auto [found, added] = known.try_emplace(pair, static_cast<std::int32_t>(out.size()));
    if (added) {
      if (out.size() == kMaxMachineStates) fail_large();
      out.push_back({{},
                     states_[static_cast<std::size_t>(pair.first)].ends &&
                         other.states_[static_cast<std::size_t>(pair.second)].ends});
      todo.push_back(pair);
    }
    return found->second;
  };
  find({0, 0});
  for (std::size_t at = 0; !todo.empty(); ++at) {
    const auto [one, second] = todo.front();
    todo.pop_front();
    for (const Way& a : states_[static_cast<std::size_t>(one)].ways) {
      for (const Way& b : other.states_[static_cast<std::size_t>(second)].ways) {
        work += 1 + a.characters.ranges().size() + b.characters.ranges().size();
        if (work > kMaxMachineWork) fail_large();
        CodePointSet set = common(a.characters, b.characters);
        if (set.empty()) continue;
        const std::int32_t target = find({a.target, b.target});
        out[at].ways.push_back({std::move(set), target});
      }
    }
  }
  return CharacterMachine(std::move(out));
}

CharacterMachine CharacterMachine::complement() const {
  std::vector<State> out = states_;
  const auto rest = static_cast<std::int32_t>(out.size());
  for (State& state : out) {
    CodePointSet known;
    for (const Way& way : state.ways) known.add(way.characters);
    CodePointSet others = known.complement();
    if (!others.empty()) state.ways.push_back({std::move(others), rest});
    state.ends = !state.ends;
  }
  out.push_back({{{CodePointSet().complement(), rest}}, true});
  return CharacterMachine(std::move(out));
}

std::pair<std::int32_t, std::int32_t> CharacterMachine::lengths() const {
  // All states lead to an end, so that a text may have any length if a state leads to itself.
  std::vector<std::int32_t> least(states_.size(), -1), depth(states_.size(), 0), ways(states_.size(), 0);
  std::deque<std::size_t> todo{0};
  least[0] = 0;
  std::int32_t low = kUnbounded;
  while (!todo.empty()) {
    const std::size_t at = todo.front();
    todo.pop_front();
    if (states_[at].ends && low == kUnbounded) low = least[at];
    for (const Way& way : states_[at].ways) {
      const auto target = static_cast<std::size_t>(way.target);
      ++ways[target];
      if (least[target] >= 0) continue;
      least[target] = least[at] + 1;
      todo.push_back(target);
    }
  }
  if (ways[0] > 0) return {low, kUnbounded};
  todo.push_back(0);
  std::size_t done = 0;
  std::int32_t high = 0;
  for (; !todo.empty(); ++done) {
    const std::size_t at = todo.front();
    todo.pop_front();
    if (states_[at].ends) high = std::max(high, depth[at]);
    for (const Way& way : states_[at].ways) {
      const auto target = static_cast<std::size_t>(way.target);
      depth[target] = std::max(depth[target], depth[at] + 1);
      if (--ways[target] == 0) todo.push_back(target);
    }
  }
  const auto reached =
      static_cast<std::size_t>(std::count_if(least.begin(), least.end(), [](auto n) { return n >= 0; }));
  return {low, done == reached ? high : kUnbounded};
}

/// For each state the counts of characters before it with which a text of `low` to `high` characters can come to an
/// end. A state is asked how many characters may follow, from none upwards, until the answer is the same for all.
std::vector<std::vector<GrammarExpression::Interval>> CharacterMachine::counts(std::int32_t low,
                                                                               std::int32_t high) const {
  const std::size_t n = states_.size();
  std::vector<std::vector<GrammarExpression::Interval>> out(n);
  std::vector<bool> can(n), next(n);
  std::size_t edges = n;
  for (std::size_t i = 0; i < n; ++i) {
    can[i] = states_[i].ends;
    edges += states_[i].ways.size();
  }
  const std::int32_t last = high == kUnbounded ? low + static_cast<std::int32_t>(n) : high;
  std::size_t work = 0;
  const auto allow = [&](std::size_t state, std::int32_t from, std::int32_t to) {  // descending, with both ends
    auto& all = out[state];
    if (!all.empty() && all.back().low <= to + 1)
      all.back().low = std::min(all.back().low, from);
    else
      all.push_back({from, to});
  };
  for (std::int32_t k = 0; k <= last; ++k) {  // characters that follow
    bool same = k > 0;
    for (std::size_t i = 0; i < n && k > 0; ++i) {
      next[i] = std::any_of(states_[i].ways.begin(), states_[i].ways.end(),
                            [&](const Way& way) { return can[static_cast<std::size_t>(way.target)]; });
      same = same && next[i] == can[i];
    }
    if (k > 0) can.swap(next);
    const std::int32_t to = high == kUnbounded ? low : high - k;
    for (std::size_t i = 0; i < n; ++i) {
      if (!can[i]) continue;
      const std::int32_t from = same ? std::max(low - last, 0) : std::max(low - k, 0);
      if (high == kUnbounded)
        allow(i, from, low);
      else if (to >= 0)
        allow(i, from, to);
    }
    if (same) break;
    if ((work += edges) > kMaxCountWork) throw ConstraintError("the lengths of its texts are too hard to count");
  }
  std::size_t all = 0;
  for (auto& intervals : out) {
    std::reverse(intervals.begin(), intervals.end());
    all += intervals.size();
  }
  if (all > kMaxPartStates * 8) throw ConstraintError("the lengths of its texts are too hard to count");
  return out;
}

ExpressionPtr CharacterMachine::in_json_string(std::int32_t low, std::int32_t high) const {
  return counted(low, high, true);
}

ExpressionPtr CharacterMachine::expression(std::int32_t low, std::int32_t high) const {
  return counted(low, high, false);
}

ExpressionPtr CharacterMachine::counted(std::int32_t low, std::int32_t high, bool in_json) const {
  if (empty() || (high != kUnbounded && high < low)) return choice({});
  const auto [least, most] = lengths();
  if (low <= least) low = 0;
  if (high != kUnbounded && most != kUnbounded && most <= high) high = kUnbounded;
  const bool counted = low > 0 || high != kUnbounded;
  std::vector<GrammarExpression::State> out(states_.size());
  if (counted) {
    auto all = counts(low, high);
    for (std::size_t i = 0; i < all.size(); ++i) out[i].counts = std::move(all[i]);
    if (out[0].counts.empty() || out[0].counts.front().low > 0) return choice({});
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].ends = states_[i].ends;
    for (const Way& way : states_[i].ways) {
      const ExpressionPtr one = characters(way.characters);
      out[i].ways.emplace_back(in_json ? constrain::in_json_string(one) : one, way.target);
    }
  }
  return machine(std::move(out), low, high);
}

CharacterMachine CharacterMachine::multiples(std::int64_t divisor) {
  if (divisor > static_cast<std::int64_t>(kMaxMachineStates) - 2) fail_large();
  std::vector<State> states(static_cast<std::size_t>(divisor) + 2);  // the beginning, behind a sign, then by remainder
  const auto lead = [&](State& state, std::int64_t remainder) {
    for (std::int64_t digit = 0; digit < 10; ++digit) {
      const auto target = static_cast<std::int32_t>(2 + (remainder * 10 + digit) % divisor);
      const char32_t character = U'0' + static_cast<char32_t>(digit);
      const auto same =
          std::find_if(state.ways.begin(), state.ways.end(), [&](const Way& way) { return way.target == target; });
      if (same != state.ways.end())
        same->characters.add({character, character});
      else
        state.ways.push_back({CodePointSet{{character, character}}, target});
    }
  };
  states[0].ways.push_back({CodePointSet{{U'-', U'-'}}, 1});
  lead(states[0], 0);
  lead(states[1], 0);
  for (std::int64_t i = 0; i < divisor; ++i) lead(states[static_cast<std::size_t>(i) + 2], i);
  states[2].ends = true;
  return CharacterMachine(std::move(states));
}

namespace {

/// Where the group that begins at `at` ends, and the places of each `|` that is in no group, from `at` on.
struct Outline {
  std::optional<std::size_t> group_end;
  std::vector<std::size_t> bars;
};

Outline outline(std::string_view regex, std::size_t at) {
  Outline out;
  int depth = 0;
  bool brackets = false;
  for (; at < regex.size(); ++at) {
    const char c = regex[at];
    if (c == '\\') {
      ++at;
    } else if (brackets) {
      brackets = c != ']';
    } else if (c == '[') {
      brackets = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')') {
      if (--depth == 0 && !out.group_end) out.group_end = at + 1;
    } else if (c == '|' && depth == 0) {
      out.bars.push_back(at);
    }
  }
  return out;
}

}  // namespace

CharacterMachine CharacterMachine::of_pattern(std::string_view regex) {
  const bool excluded = regex.starts_with("^(?!");
  if (!excluded && !regex.starts_with("^(?=")) return CharacterMachine(search_expression(regex));
  const Outline whole = outline(regex, 1);
  const bool repeated = whole.group_end && *whole.group_end < regex.size() &&
                        std::string_view("*+?{").find(regex[*whole.group_end]) != std::string_view::npos;
  // Another alternative would not be held to the look-ahead; the reader of expressions refuses it.
  if (!whole.group_end || repeated || !whole.bars.empty()) return CharacterMachine(search_expression(regex));
  const std::string_view inside = regex.substr(4, *whole.group_end - 5);
  std::vector<std::size_t> bars = outline(inside, 0).bars;
  bars.push_back(inside.size());
  std::string ahead;
  std::size_t from = 0;
  for (const std::size_t bar : bars) {  // each alternative begins where the text does
    const std::string_view one = inside.substr(from, bar - from);
    ahead += (from == 0 ? "" : "|") + std::string(one.starts_with('^') ? "" : "^") + std::string(one);
    from = bar + 1;
  }
  const CharacterMachine one(search_expression(ahead));
  const CharacterMachine rest = of_pattern("^" + std::string(regex.substr(*whole.group_end)));
  return rest.both(excluded ? one.complement() : one);
}

}  // namespace baton::constrain
