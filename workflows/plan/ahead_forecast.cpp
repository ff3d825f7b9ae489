// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/ahead_forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

namespace baton {
namespace {

/// For each turn the turns that are over when it begins, as bits.
class Ancestors {
 public:
  explicit Ancestors(const std::vector<PlannedTurn>& turns) : words_((turns.size() + 63) / 64), bits_(turns.size()) {
    for (std::size_t i = 0; i < turns.size(); ++i) {
      bits_[i].assign(words_, 0);
      for (const int need : turns[i].needs) {
        const auto before = static_cast<std::size_t>(need);
        for (std::size_t w = 0; w < words_; ++w) bits_[i][w] |= bits_[before][w];
        bits_[i][before / 64] |= std::uint64_t{1} << before % 64;
      }
    }
  }
  bool has(int turn, int before) const {
    const auto at = static_cast<std::size_t>(before);
    return (bits_[static_cast<std::size_t>(turn)][at / 64] >> at % 64 & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::vector<std::uint64_t>> bits_;
};

class Forecast {
 public:
  explicit Forecast(std::vector<PlannedTurn>& turns) : turns_(turns), ancestors_(turns) {}

  void fill(std::size_t index) {
    PlannedTurn& turn = turns_[index];
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
    std::vector<int> before;  // turns whose text stands before the slot
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
      if (slot.turn >= 0) before.push_back(slot.turn);
    }
  }

 private:
  std::string id(int turn) const { return turns_[static_cast<std::size_t>(turn)].id; }

  /// Answers that can be mirrored while they are decoded, with the slots in this order.
  int mirrored(const PlannedTurn& turn, const std::vector<std::string>& order) const {
    int count = 0;
    std::vector<int> before;
    for (const std::string& name : order) {
      const SlotSource& slot = *turn.slot(name);
      if (slot.kind == SlotSource::Kind::agent_output && follows_all(slot.turn, before)) ++count;
      if (slot.turn >= 0) before.push_back(slot.turn);
    }
    return count;
  }

  bool follows_all(int turn, const std::vector<int>& before) const {
    return std::all_of(before.begin(), before.end(),
                       [&](int earlier) { return earlier == turn || ancestors_.has(turn, earlier); });
  }

  std::string reason(const PlannedTurn& turn, const SlotSource& slot, const std::vector<int>& before) const {
    for (const int earlier : before) {
      if (slot.turn < 0 || (earlier != slot.turn && !ancestors_.has(slot.turn, earlier)))
        return fmt::format("computed ahead once {}, which stands before it, has ended", id(earlier));
    }
    if (slot.kind == SlotSource::Kind::input) return "computed ahead while others decode";
    if (slot.kind == SlotSource::Kind::tool_result)
      return fmt::format("computed ahead once the tools of {} have run", id(slot.turn));
    if (turns_[static_cast<std::size_t>(slot.turn)].model != turn.model)
      return fmt::format("computed ahead once {}, of another model, has ended", id(slot.turn));
    return fmt::format("mirrored while {} decodes", id(slot.turn));
  }

  std::vector<PlannedTurn>& turns_;
  Ancestors ancestors_;
};

}  // namespace

void forecast_ahead(std::vector<PlannedTurn>& turns) {
  Forecast forecast(turns);
  for (std::size_t i = 0; i < turns.size(); ++i) forecast.fill(i);
}

}  // namespace baton
