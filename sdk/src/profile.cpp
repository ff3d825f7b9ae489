// Profiling a model for the public face.
#include <fmt/format.h>

#include "engine/effect_profiler.h"
#include "engine/model_profile.h"
#include "sdk/src/calibration.h"
#include "sdk/src/internal.h"

namespace baton::inline v1 {
namespace {

ProfiledRange public_range(const LayerRange& range, const Agreement& agreement) {
  return {range.start, range.detect, range.end, agreement.all, agreement.start, agreement.detect, agreement.end};
}

ModelProfile public_profile(const StoredProfile& stored) {
  ModelProfile profile;
  profile.fingerprint = stored.fingerprint;
  profile.source = stored.source;
  profile.hand_overs = stored.hand_overs;
  profile.tokens = stored.tokens;
  profile.similarity = stored.similarity;
  profile.similarity_error = stored.similarity_error;
  profile.correlation = stored.correlation;
  profile.correlation_error = stored.correlation_error;
  profile.slope = public_range(stored.slope, stored.slope_agreement);
  profile.level = public_range(stored.level, stored.level_agreement);
  if (const auto& effect = stored.effect) {
    const LayerRange& range = effect->range;
    profile.effect = {range.start,     range.detect,  range.end,   effect->direct,
                      effect->weighty, effect->start, effect->end, effect->detect};
  }
  profile.reading = name_of(stored.reading);
  profile.json = to_json(stored);
  return profile;
}

void check(const ProfileOptions& options) {
  if (!parse_reading(options.reading)) {
    throw InputError(fmt::format("reading '{}' is not known; expected slope, level or effect", options.reading));
  }
  if (options.data.empty() && options.hand_overs < 1)
    throw InputError(fmt::format("{} hand-overs: at least 1 is needed", options.hand_overs));
  if (options.max_tokens < 1) throw InputError(fmt::format("max_tokens {}: at least 1 is needed", options.max_tokens));
}

std::optional<ModelProfile> profile(const ProfileOptions& options) {
  const auto folder = find_model(options.model);
  internal::EngineOptions engine_options;
  engine_options.device = options.device;
  engine_options.threads = options.threads;
  if (options.on_load) engine_options.model.progress = [&](double share) { options.on_load(folder.string(), share); };
  const auto engine = open_engine(folder, engine_options);
  const Model& model = engine->model();

  std::vector<CalibrationHandOver> hand_overs;
  for (const HandOver& one : options.data) hand_overs.push_back({one.producer, one.answer, one.before, one.after});
  if (hand_overs.empty())
    hand_overs = synthetic_hand_overs(model, options.hand_overs, options.max_tokens, options.seed);
  ProfilerOptions profiler;
  profiler.max_tokens = options.max_tokens;
  profiler.min_tokens = std::min(profiler.min_tokens, options.max_tokens);
  profiler.seed = options.seed;
  profiler.stop = options.stop;
  const bool with_effect = options.reading == "effect";
  const auto part = [&](double begin, double length) {
    return [&, begin, length](double share) {
      if (options.on_progress) options.on_progress(begin + length * share);
    };
  };
  profiler.on_progress = part(0.0, with_effect ? 0.2 : 1.0);
  const auto measured = measure_profile(*engine, hand_overs, profiler);
  if (!measured || options.stop.stop_requested()) return std::nullopt;

  StoredProfile stored = to_stored(*measured, model, options.data.empty() ? "synthetic" : options.source);
  stored.reading = *parse_reading(options.reading);
  if (with_effect) {
    profiler.on_progress = part(0.2, 0.8);
    stored.effect = measure_effect(*engine, hand_overs, profiler);
    if (!stored.effect || options.stop.stop_requested()) return std::nullopt;
    if (!stored.effect->problem.empty())
      throw ModelError(fmt::format("{}: {}", folder.string(), stored.effect->problem));
  }
  ModelProfile result = public_profile(stored);
  result.model = folder;
  result.left_out = measured->left_out;
  return result;
}

}  // namespace

std::optional<ModelProfile> profile_model(const ProfileOptions& options) {
  check(options);
  return with_resource_errors([&] { return profile(options); });
}

std::filesystem::path save_profile(const ModelProfile& profile) {
  const auto beside = profile_beside(profile.model), cache = profile_in_cache(profile.fingerprint);
  return with_resource_errors([&] {
    try {
      write_whole(beside, profile.json);
      return beside;
    } catch (const std::filesystem::filesystem_error&) {
      if (cache.empty()) throw;
    }
    write_whole(cache, profile.json);
    return cache;
  });
}

}  // namespace baton::inline v1
