// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/verified/verified.h"

#include "engine/reuse/exact/exact.h"
#include "engine/reuse/rectify/rectify.h"

namespace baton {
namespace {

const RectifyOptions& options_of_verified(const ReuseOptions& reuse) { return own<RectifyOptions>(reuse); }

constexpr Method kVerified = {
    .name = "verified",
    .summary = "An agent starts on rectified KV; what it wrote is checked once its prompt has exact KV.",
    .traits = {.exact = true,
               .prefixes = MethodTraits::Prefixes::always,
               .segments = true,
               .ahead = true,
               .layers = MethodTraits::Layers::detection,
               .hidden_states = true,
               .tentative = true},
    .schedule =
        [](const ReuseOptions& reuse, const ReuseDecision& decision, const ScheduleInput& input) {
          return decision.exact ? full_schedule(input) : rectify_schedule(options_of_verified(reuse), decision, input);
        },
    .asked_reuse = [](const ReuseOptions& reuse) { return options_of_verified(reuse).reuse; },
    .max_reuse = [](const ReuseOptions& reuse, const LayerRange& range,
                    std::int32_t layers) { return max_rectify_reuse(options_of_verified(reuse), range, layers); },
    .problem = [](const ReuseOptions& reuse) { return rectify_problem(options_of_verified(reuse)); },
    .ahead_by = lockstep_method,
    .make_state = make_correction_state,
    .recompute = [](ReuseOptions& reuse, double share,
                    std::int32_t) { own<RectifyOptions>(reuse).selection.share = share; },
    .keys =
        [] {
          std::vector<MethodKey> keys = rectify_keys();
          keys.push_back(reuse_key());
          return keys;
        },
    .read =
        [](GivenKeys& given, ReuseOptions& reuse) {
          read_rectify(given, own<RectifyOptions>(reuse));
          read_reuse(given, own<RectifyOptions>(reuse));
          // Attention that an author's tokens received cannot be kept while tokens are dropped.
          given.refuse({"select.score", "select.deviation", "select.influence", "select.suffix"},
                       "on method verified, which chooses by change");
        },
    .rectify_options = [](const ReuseOptions& reuse) { return &options_of_verified(reuse); }};

}  // namespace

const Method& verified_method() { return kVerified; }

}  // namespace baton
