// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/auto/auto.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/reuse/exact/exact.h"

namespace baton {
namespace {

/// Chosen on tuning questions (docs/decisions/auto.md).
constexpr float kTieFactor = 6.0f;

const AutoOptions& options_of_auto(const ReuseOptions& reuse) { return own<AutoOptions>(reuse); }

void decide_auto(const ReuseOptions& reuse, const Calibration& calibration, PlaceId place, ReuseDecision& decision) {
  const AutoOptions& options = options_of_auto(reuse);
  decision.tolerance = options.tolerance;
  decision.measured = options.history && !decision.exact && !calibration.levels.levels.empty();
  choose_level(decision.measured ? calibration.history.levels_for(place, calibration.levels, options.tolerance)
                                 : calibration.levels,
               decision);
}

std::string problem_of_auto(const ReuseOptions& reuse) {
  std::string problem = rectify_problem(options_of_auto(reuse).rectify);
  expect_not_negative(problem, "tolerance", options_of_auto(reuse).tolerance);
  return problem;
}

std::vector<MethodKey> keys_of_auto() {
  std::vector<MethodKey> keys = {
      {.name = "tolerance",
       .type = MethodKey::Type::number,
       .high = 100,
       .standard = "0.02",
       .doc =
           "handed-over texts are rectified only if the mean KL divergence of a turn from full prefill is expected to "
           "stay within this many nats per token, in 95 % of the turns, or on average under a guard that watches "
           "each prompt; 0: everything is exact.",
       .only_here = true},
      {.name = "history",
       .standard = "true",
       .doc = "the first turns of each place, and later ones now and then, are measured on the user's own texts, and "
              "decide there ([methods](methods.md#auto)); false: the model's levels alone decide.",
       .only_here = true},
  };
  for (MethodKey& key : rectify_keys()) keys.push_back(std::move(key));
  return keys;
}

constexpr Method kAuto = {
    .name = "auto",
    .summary = "Handed-over texts are rectified where that stays within the tolerance; the rest is exact.",
    .traits = {.prefixes = MethodTraits::Prefixes::always,
               .segments = true,
               .ahead = true,
               .layers = MethodTraits::Layers::detection,
               .hidden_states = true,
               .measures = true},
    .schedule =
        [](const ReuseOptions& reuse, const ReuseDecision& decision, const ScheduleInput& input) {
          return decision.exact ? full_schedule(input)
                                : rectify_schedule(options_of_auto(reuse).rectify, decision, input);
        },
    .decide = decide_auto,
    .problem = problem_of_auto,
    .segments_by = rectify_method,
    .ahead_by = lockstep_method,
    .make_state = make_correction_state,
    .keys = keys_of_auto,
    .read =
        [](GivenKeys& given, ReuseOptions& reuse) {
          AutoOptions& options = own<AutoOptions>(reuse);
          read_rectify(given, options.rectify);
          options.tolerance = given.number("tolerance").value_or(options.tolerance);
          options.history = given.boolean("history").value_or(options.history);
          if (options.tolerance <= 0.0f) reuse.exactness = Exactness::exact;
        },
    .rectify_options = [](const ReuseOptions& reuse) { return &options_of_auto(reuse).rectify; }};

}  // namespace

const Method& auto_method() { return kAuto; }

void choose_level(const RelayLevels& levels, ReuseDecision& decision) {
  if (!decision.range.given()) decision.range = levels.range;
  if (decision.exact) return;
  if (const RelayLevel* level = levels.within(decision.tolerance)) {
    decision.reuse = level->reuse;
    decision.predicted = static_cast<float>(level->divergence);
    decision.basis = basis_of(levels);
    decision.tie_factor = kTieFactor;
    if (levels.guard_scale > 0.0) decision.max_left = static_cast<float>(decision.tolerance / levels.guard_scale);
    return;
  }
  decision.exact = true;
  decision.reason =
      levels.levels.empty() ? std::string("nothing is known about rectification on this model")
      : levels.assumed
          ? fmt::format("exact until {} turns of this model are measured; {} are", RelayHistory::kEnough, levels.turns)
          : fmt::format(
                "{}rectification is expected to reach {:.3g} nats {}{}; the tolerance is {:.3g}", basis_of(levels),
                levels.levels.back().high,
                levels.turns > 0 ? fmt::format("at {:.0f} %", 100 * levels.levels.back().reuse) : "on this model",
                levels.unguarded.empty() ? "" : " and " + levels.unguarded, decision.tolerance);
}

ReuseOptions measuring_options(const ReuseOptions& of_turn, const ReuseDecision& decision,
                               const std::vector<RelayLevel>& levels) {
  constexpr double kReuse = 0.8;  // of a turn that auto does not rectify, or the nearest level
  const auto nearest = std::min_element(levels.begin(), levels.end(), [](const RelayLevel& a, const RelayLevel& b) {
    return std::abs(a.reuse - kReuse) < std::abs(b.reuse - kReuse);
  });
  ReuseOptions reuse;
  reuse.method = &rectify_method();
  reuse.range = decision.range;
  reuse.min_tokens = of_turn.min_tokens;
  RectifyOptions& options = own<RectifyOptions>(reuse);
  options = options_of_auto(of_turn).rectify;
  options.reuse = nearest->reuse;
  return reuse;
}

double expected_by_guard(const RelayLevels& levels, float left) {
  const double nats = levels.guard_scale * static_cast<double>(left);
  return levels.guard_scale > 0.0 && nats >= 0.0 && std::isfinite(nats) ? nats : -1.0;
}

}  // namespace baton
