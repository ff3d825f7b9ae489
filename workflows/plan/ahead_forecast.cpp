// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/ahead_forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

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
        slot.method = &method_of(MethodId::lockstep);
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

}  // namespace

void forecast_ahead(std::vector<PlannedTurn>& turns, const std::function<bool(const PlannedTurn& turn)>& ahead) {
  Forecast forecast(turns);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (ahead(turns[i])) forecast.fill(i);
  }
}

}  // namespace baton
