// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/ahead_forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

namespace baton {
namespace {

/// For each step the steps that are over when it begins, as bits.
class Ancestors {
 public:
  explicit Ancestors(const std::vector<PlanStep>& steps) : words_((steps.size() + 63) / 64), bits_(steps.size()) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      bits_[i].assign(words_, 0);
      for (const int need : steps[i].needs) {
        const auto before = static_cast<std::size_t>(need);
        for (std::size_t w = 0; w < words_; ++w) bits_[i][w] |= bits_[before][w];
        bits_[i][before / 64] |= std::uint64_t{1} << before % 64;
      }
    }
  }
  bool has(int step, int before) const {
    const auto at = static_cast<std::size_t>(before);
    return (bits_[static_cast<std::size_t>(step)][at / 64] >> at % 64 & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::vector<std::uint64_t>> bits_;
};

class Forecast {
 public:
  explicit Forecast(std::vector<PlanStep>& steps) : steps_(steps), ancestors_(steps) {}

  void fill(std::size_t index) {
    PlanStep& step = steps_[index];
    std::string never;  // why nothing from here on is known before the step begins
    if (step.needs.empty()) {
      never = "the first of its run: there is no step to compute it in";
    } else if (step.when) {
      never = "its turn has a condition, so nothing is computed ahead";
    }
    if (never.empty() && !step.written.empty()) {
      std::vector<std::string> names;
      for (const SlotSource& slot : step.slots) names.push_back(slot.name);
      step.order = fmt::format("{}; {} of its answers are mirrored, {} as written ({})", fmt::join(names, ", "),
                               mirrored(step, names), mirrored(step, step.written), fmt::join(step.written, ", "));
    }
    std::vector<int> before;  // steps whose text stands before the slot
    for (SlotSource& slot : step.slots) {
      if (slot.kind == SlotSource::Kind::empty) continue;
      const bool own = slot.kind == SlotSource::Kind::tool_result && slot.step == static_cast<int>(index);
      if (never.empty() && own) {
        slot.reason = "known only when its tools have run";
        never = fmt::format("behind {}, which is known only when its tools have run", slot.name);
      } else if (!never.empty()) {
        slot.reason = never;
      } else {
        slot.method = &method_of(MethodId::lockstep);
        slot.reason = reason(step, slot, before);
      }
      if (slot.step >= 0) before.push_back(slot.step);
    }
  }

 private:
  std::string id(int step) const { return steps_[static_cast<std::size_t>(step)].id; }

  /// Answers that can be mirrored while they are decoded, with the slots in this order.
  int mirrored(const PlanStep& step, const std::vector<std::string>& order) const {
    int count = 0;
    std::vector<int> before;
    for (const std::string& name : order) {
      const SlotSource& slot = *step.slot(name);
      if (slot.kind == SlotSource::Kind::agent_output && follows_all(slot.step, before)) ++count;
      if (slot.step >= 0) before.push_back(slot.step);
    }
    return count;
  }

  bool follows_all(int step, const std::vector<int>& before) const {
    return std::all_of(before.begin(), before.end(),
                       [&](int earlier) { return earlier == step || ancestors_.has(step, earlier); });
  }

  std::string reason(const PlanStep& step, const SlotSource& slot, const std::vector<int>& before) const {
    for (const int earlier : before) {
      if (slot.step < 0 || (earlier != slot.step && !ancestors_.has(slot.step, earlier)))
        return fmt::format("computed ahead once {}, which stands before it, has ended", id(earlier));
    }
    if (slot.kind == SlotSource::Kind::input) return "computed ahead while others decode";
    if (slot.kind == SlotSource::Kind::tool_result)
      return fmt::format("computed ahead once the tools of {} have run", id(slot.step));
    if (steps_[static_cast<std::size_t>(slot.step)].model != step.model)
      return fmt::format("computed ahead once {}, of another model, has ended", id(slot.step));
    return fmt::format("mirrored while {} decodes", id(slot.step));
  }

  std::vector<PlanStep>& steps_;
  Ancestors ancestors_;
};

}  // namespace

void forecast_ahead(std::vector<PlanStep>& steps) {
  Forecast forecast(steps);
  for (std::size_t i = 0; i < steps.size(); ++i) forecast.fill(i);
}

}  // namespace baton
