// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/cacheblend/cacheblend.h"

#include <algorithm>
#include <cmath>

#include "engine/reuse/exact/exact.h"
#include "engine/reuse/method.h"
#include "engine/reuse/rectify/rectify.h"

namespace baton {
namespace {

PromptSchedule cacheblend_schedule(const ReuseOptions& reuse, const ReuseDecision& decision,
                                   const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  const CacheblendOptions& options = own<CacheblendOptions>(reuse);
  if (input.layers < 2) return full_schedule(input);
  const bool by_cosine = options.score == CacheblendOptions::Score::cosine;
  // Layer 0 of KV that another model made is computed for every token, too.
  const bool imported =
      std::any_of(input.segments.begin(), input.segments.end(), [](const PlacedSegment& one) { return one.imported; });
  const std::int32_t all = imported ? 2 : 1;
  const auto choose = [share = options.share, kept = decision.reuse, layers = input.layers, all, by_cosine](
                          std::span<const float> deviation, std::span<const float>) {
    const std::vector<double> scores(deviation.begin(), deviation.end());
    const double wanted = share * static_cast<double>(scores.size());
    const auto count = static_cast<std::size_t>(by_cosine ? std::ceil(wanted) : std::floor(wanted + 1e-6));
    return largest(scores, kept > 0.0 ? tokens_for_reuse(kept, layers, scores.size(), all, layers - 2) : count);
  };
  const ValueMeasure measure = by_cosine ? ValueMeasure::cosine : ValueMeasure::squared;
  std::int32_t detection = -1;
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment&, std::int32_t begin, std::int32_t end) {
                         if (detection < 0 || by_cosine)
                           detection = builder.add_detection({1, input.layers, choose, measure});
                         for (std::int32_t at = begin; at < end; ++at) builder.add(at, {0, 2, detection, true});
                       });
}

std::string cacheblend_problem(const ReuseOptions& reuse) {
  std::string problem;
  expect_fraction(problem, "reuse", own<CacheblendOptions>(reuse).reuse);
  expect_fraction(problem, "cacheblend_share", own<CacheblendOptions>(reuse).share);
  return problem;
}

constexpr Method kCacheblend = {
    .name = "cacheblend",
    .summary = "The tokens whose values deviate most in an early layer are recomputed.",
    .traits = {.segments = true, .models = true},
    .schedule = cacheblend_schedule,
    .asked_reuse = [](const ReuseOptions& reuse) { return own<CacheblendOptions>(reuse).reuse; },
    .max_reuse = [](const ReuseOptions&, const LayerRange&, std::int32_t layers) { return 1.0 - 1.0 / layers; },
    .problem = cacheblend_problem,
    .recompute = [](ReuseOptions& reuse, double share, std::int32_t) { own<CacheblendOptions>(reuse).share = share; },
    .keys =
        [] {
          return std::vector<MethodKey>{
              reuse_key(),
              {.name = "cacheblend_share",
               .type = MethodKey::Type::number,
               .high = 1,
               .standard = "0.15",
               .doc = "the fraction of the reused tokens that is recomputed.",
               .lab = true},
              {.name = "cacheblend_score",
               .type = MethodKey::Type::choice,
               .words = {"values", "cosine"},
               .standard = "values",
               .doc = "ranks tokens by the squared distance of their values, over all segments of a prompt (`values`, "
                      "as published), or by the cosine of their values, in each segment (`cosine`).",
               .lab = true}};
        },
    .read =
        [](GivenKeys& given, ReuseOptions& reuse) {
          CacheblendOptions& options = own<CacheblendOptions>(reuse);
          options.share = given.number("cacheblend_share").value_or(static_cast<float>(options.share));
          if (given.text("cacheblend_score").value_or("values") == "cosine")
            options.score = CacheblendOptions::Score::cosine;
          if (!given.has("reuse")) return;
          options.reuse = given.number("reuse").value_or(0.0f);
          given.refuse({"cacheblend_share"}, "with `reuse`, which says how much is recomputed");
        }};

}  // namespace

const Method& cacheblend_method() { return kCacheblend; }

}  // namespace baton
