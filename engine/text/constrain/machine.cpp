// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
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
constexpr std::size_t kMaxBehinds = 16;
constexpr std::size_t kMaxCountWork = 50'000'000;  // of finding the lengths of a machine's texts

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
  /// Leads on without a character, if what stands around the place is so.
  struct Look {
    std::int32_t target;
    bool ahead;
    std::size_t index;  // of the machine of what must follow, or of the set that the character in front is asked for
    bool negated;       // of a set: the character in front is not in it, or there is none
  };
  struct State {
    std::vector<std::pair<CodePointSet, std::int32_t>> ways;
    std::vector<std::int32_t> empties;
    std::vector<Look> looks;
  };

  explicit OpenMachine(const GrammarExpression& expression) {
    add();
    end_ = emit(expression, 0);
  }

  const State& state(std::int32_t index) const { return states_[static_cast<std::size_t>(index)]; }
  std::int32_t end() const { return end_; }
  const std::vector<CharacterMachine>& aheads() const { return aheads_; }
  const std::vector<CodePointSet>& behinds() const { return behinds_; }

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
      case Kind::ahead:
      case Kind::behind: {
        const std::int32_t end = add();
        const bool ahead = expression.kind == Kind::ahead;
        at(from).looks.push_back({end, ahead, ahead ? ahead_of(expression) : behind_of(expression.characters),
                                  !ahead && expression.negated});
        return end;
      }
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

  std::size_t ahead_of(const GrammarExpression& expression) {
    const auto [found, added] = known_aheads_.try_emplace(&expression, aheads_.size());
    if (added) {
      const ExpressionPtr any = repeat(characters(CodePointSet().complement()), 0, kUnbounded);
      const CharacterMachine machine(sequence({expression.parts[0], any}), expression.at_begin);
      aheads_.push_back(expression.negated ? machine.complement() : machine);
    }
    return found->second;
  }

  std::size_t behind_of(const CodePointSet& set) {
    const auto same = [&](const CodePointSet& other) {
      return set.without(other).empty() && other.without(set).empty();
    };
    const auto found = std::find_if(behinds_.begin(), behinds_.end(), same);
    if (found != behinds_.end()) return static_cast<std::size_t>(found - behinds_.begin());
    if (behinds_.size() == kMaxBehinds)
      throw ConstraintError(fmt::format("expected at most {} different look-behinds", kMaxBehinds));
    behinds_.push_back(set);
    return behinds_.size() - 1;
  }

  std::vector<State> states_;
  std::vector<CharacterMachine> aheads_;  // what must follow as a whole
  std::vector<CodePointSet> behinds_;
  std::map<const GrammarExpression*, std::size_t> known_aheads_;
  std::int32_t end_ = 0;
};

}  // namespace

/// Makes an open machine deterministic. A place in it has duties: machines of look-aheads with the states that they
/// are in, which must be able to end where the text does.
class CharacterMachine::Determined {
 public:
  Determined(const OpenMachine& machine, bool at_begin) : machine_(machine) {
    for (const CharacterMachine& ahead : machine.aheads()) satisfied_.push_back(satisfied_states(ahead));
    find(closure({{0, 0}}, {at_begin, 0}), 0);
    for (std::size_t at = 0; !todo_.empty(); ++at) {
      const Key key = *todo_.front();
      todo_.pop_front();
      for (auto& [targets, set] : ways_of(key.places)) {
        const std::int32_t target = find(closure(targets.places, {true, targets.before}), targets.before);
        auto& ways = states_[at].ways;
        const auto same = std::find_if(ways.begin(), ways.end(), [&](const Way& way) { return way.target == target; });
        if (same != ways.end())
          same->characters.add(set);
        else
          ways.push_back({set, target});
      }
    }
  }

  std::vector<State> take_states() { return std::move(states_); }

 private:
  struct Place {
    std::int32_t state;
    std::int32_t duties;  // index in duties_
    auto operator<=>(const Place&) const = default;
  };
  using Places = std::vector<Place>;  // sorted
  using Duty = std::pair<std::size_t, std::int32_t>;
  using Duties = std::vector<Duty>;  // sorted
  struct Key {
    Places places;
    std::uint32_t before;  // the sets of look-behinds that the character in front is in, as bits
    auto operator<=>(const Key&) const = default;
  };
  struct Before {
    bool known;
    std::uint32_t sets;
  };

  static const State& state_of(const CharacterMachine& machine, std::int32_t index) {
    return machine.states_[static_cast<std::size_t>(index)];
  }

  /// The states from which every text comes to an end.
  static std::vector<bool> satisfied_states(const CharacterMachine& machine) {
    std::vector<bool> out;
    for (const State& state : machine.states_) {
      CodePointSet all;
      for (const Way& way : state.ways) all.add(way.characters);
      out.push_back(state.ends && all.complement().empty());
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto& ways = machine.states_[i].ways;
        if (!out[i] || std::all_of(ways.begin(), ways.end(),
                                   [&](const Way& way) { return out[static_cast<std::size_t>(way.target)]; }))
          continue;
        out[i] = false;
        changed = true;
      }
    }
    return out;
  }

  std::int32_t number_of(Duties duties) {
    std::erase_if(duties,
                  [&](const Duty& duty) { return satisfied_[duty.first][static_cast<std::size_t>(duty.second)]; });
    std::sort(duties.begin(), duties.end());
    duties.erase(std::unique(duties.begin(), duties.end()), duties.end());
    const auto [found, added] = known_duties_.try_emplace(std::move(duties), static_cast<std::int32_t>(duties_.size()));
    if (added) duties_.push_back(&found->first);
    return found->second;
  }
  const Duties& duties(std::int32_t index) const { return *duties_[static_cast<std::size_t>(index)]; }

  void work(std::size_t units = 1) {
    if ((work_ += units) > kMaxMachineWork) fail_large();
  }

  bool ends(const Place& place) const {
    const Duties& all = duties(place.duties);
    return place.state == machine_.end() && std::all_of(all.begin(), all.end(), [&](const Duty& duty) {
             return state_of(machine_.aheads()[duty.first], duty.second).ends;
           });
  }

  std::int32_t find(Places places, std::uint32_t before) {
    const bool end = std::any_of(places.begin(), places.end(), [&](const Place& place) { return ends(place); });
    const auto [found, added] =
        known_.try_emplace(Key{std::move(places), before}, static_cast<std::int32_t>(states_.size()));
    if (added) {
      if (states_.size() == kMaxMachineStates) fail_large();
      states_.emplace_back().ends = end;
      todo_.push_back(&found->first);
    }
    return found->second;
  }

  /// All places that are reached without a character.
  Places closure(Places todo, Before before) {
    std::set<Place> seen(todo.begin(), todo.end());
    const auto reach = [&](const Place& place) {
      if (seen.insert(place).second) todo.push_back(place);
    };
    while (!todo.empty()) {
      const Place at = todo.back();
      todo.pop_back();
      work();
      for (const std::int32_t next : machine_.state(at.state).empties) reach({next, at.duties});
      for (const OpenMachine::Look& look : machine_.state(at.state).looks) {
        if (!look.ahead) {
          if (!before.known) throw ConstraintError("a look-ahead asks for what stands in front of it");
          if (((before.sets >> look.index) & 1U) != (look.negated ? 1U : 0U)) reach({look.target, at.duties});
        } else if (!machine_.aheads()[look.index].empty()) {
          Duties more = duties(at.duties);
          work(1 + more.size());
          more.emplace_back(look.index, 0);
          reach({look.target, number_of(std::move(more))});
        }
      }
    }
    return {seen.begin(), seen.end()};
  }

  /// A set of characters, and the place that they lead to.
  using Step = std::pair<CodePointSet, Place>;

  /// A character leads on if all duties go on, too.
  std::vector<Step> steps_of(const Places& places) {
    std::vector<Step> out;
    for (const Place& place : places) {
      for (const auto& [set, target] : machine_.state(place.state).ways) {
        std::vector<std::pair<CodePointSet, Duties>> open{{set, {}}};
        for (const auto& [index, state] : duties(place.duties)) {
          std::vector<std::pair<CodePointSet, Duties>> next;
          for (const auto& [characters, done] : open) {
            for (const Way& way : state_of(machine_.aheads()[index], state).ways) {
              work(1 + characters.ranges().size() + way.characters.ranges().size());
              CodePointSet both = common(characters, way.characters);
              if (both.empty()) continue;
              next.emplace_back(std::move(both), done);
              next.back().second.emplace_back(index, way.target);
            }
          }
          open = std::move(next);
        }
        for (auto& [characters, done] : open) out.emplace_back(std::move(characters), Place{target, number_of(done)});
      }
    }
    return out;
  }

  /// What the characters lead to: sets that do not overlap, and the places behind each.
  std::map<Key, CodePointSet> ways_of(const Places& places) {
    const std::vector<Step> steps = steps_of(places);
    std::set<char32_t> begins;  // of ranges in which all characters lead to the same places
    const auto add_begins = [&](const CodePointSet& set) {
      for (const CodePointRange& range : set.ranges()) {
        begins.insert(range.low);
        begins.insert(range.high + 1);
      }
    };
    for (const auto& [set, target] : steps) add_begins(set);
    for (const CodePointSet& set : machine_.behinds()) add_begins(set);
    std::map<char32_t, Places> targets;
    for (const auto& [set, target] : steps) {
      for (const CodePointRange& range : set.ranges()) {
        for (auto at = begins.find(range.low); at != begins.end() && *at <= range.high; ++at) {
          work();
          targets[*at].push_back(target);
        }
      }
    }
    std::map<Key, CodePointSet> out;
    for (auto& [begin, reached] : targets) {
      std::sort(reached.begin(), reached.end());
      reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
      std::uint32_t before = 0;
      for (std::size_t i = 0; i < machine_.behinds().size(); ++i)
        before |= machine_.behinds()[i].contains(begin) ? 1U << i : 0U;
      const auto end = begins.upper_bound(begin);
      out[{std::move(reached), before}].add({begin, end == begins.end() ? begin : *end - 1});
    }
    return out;
  }

  const OpenMachine& machine_;
  std::vector<State> states_;
  std::vector<std::vector<bool>> satisfied_;  // of each look-ahead's machine
  std::map<Duties, std::int32_t> known_duties_{{{}, 0}};
  std::vector<const Duties*> duties_{&known_duties_.begin()->first};
  std::map<Key, std::int32_t> known_;
  std::deque<const Key*> todo_;
  std::size_t work_ = 0;
};

CharacterMachine::CharacterMachine(std::vector<State> states) : states_(std::move(states)) { drop_dead_ends(); }

CharacterMachine::CharacterMachine(const ExpressionPtr& expression) : CharacterMachine(expression, true) {}

CharacterMachine::CharacterMachine(const ExpressionPtr& expression, bool at_begin) {
  const OpenMachine machine(*expression);
  states_ = Determined(machine, at_begin).take_states();
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

CharacterMachine CharacterMachine::decimal_multiples(std::int64_t divisor, int digits) {
  const auto limit = static_cast<std::int64_t>(kMaxMachineStates);
  if (divisor > limit || (digits + 2) * divisor + 2 > limit) fail_large();
  // The beginning, behind a sign, then by remainder: of the whole part, behind the point, behind each further digit.
  std::vector<State> states(static_cast<std::size_t>((digits + 2) * divisor + 2));
  const auto index = [&](int step, std::int64_t remainder) {
    return static_cast<std::int32_t>(2 + step * divisor + remainder);
  };
  const auto lead = [&](std::int32_t from, int step, std::int64_t remainder) {
    for (std::int64_t digit = 0; digit < 10; ++digit) {
      const char32_t character = U'0' + static_cast<char32_t>(digit);
      states[static_cast<std::size_t>(from)].ways.push_back(
          {CodePointSet{{character, character}}, index(step, (remainder * 10 + digit) % divisor)});
    }
  };
  states[0].ways.push_back({CodePointSet{{U'-', U'-'}}, 1});
  lead(0, 0, 0);
  lead(1, 0, 0);
  for (std::int64_t i = 0; i < divisor; ++i) {
    lead(index(0, i), 0, i);
    states[static_cast<std::size_t>(index(0, i))].ways.push_back({CodePointSet{{U'.', U'.'}}, index(1, i)});
    for (int step = 0; step < digits + 2; ++step) {
      if (step > 0 && step <= digits) lead(index(step, i), step + 1, i);
      std::int64_t rest = i;  // with the digits that are left out
      for (int left = digits - std::max(step - 1, 0); left > 0; --left) rest = rest * 10 % divisor;
      states[static_cast<std::size_t>(index(step, i))].ends = step != 1 && rest == 0;
    }
  }
  return CharacterMachine(std::move(states));
}

CharacterMachine CharacterMachine::of_pattern(std::string_view regex) {
  return CharacterMachine(search_expression(regex));
}

}  // namespace baton::constrain
