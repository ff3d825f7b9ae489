// SPDX-License-Identifier: Apache-2.0
// Profiling a model for the public face.
#include <fmt/format.h>

#include "engine/base/files.h"
#include "engine/learning/profile_files.h"
#include "engine/reuse/lab/lab_methods.h"
#include "sdk/lab/effect_profiler.h"
#include "sdk/lab/layer_profiler.h"
#include "sdk/src/internal.h"
#include "sdk/src/model_ranges.h"

#include <baton/lab/profile.h>

namespace baton::inline v1::lab {
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
  if (options.data.empty() && options.hand_overs < 1)
    throw InputError(fmt::format("hand_overs: expected at least 1, found {}", options.hand_overs));
  if (options.max_tokens < 1)
    throw InputError(fmt::format("max_tokens: expected at least 1, found {}", options.max_tokens));
}

std::shared_ptr<LocalEngine> open(const std::filesystem::path& folder, const ProfileOptions& options) {
  LocalEngineOptions engine;
  engine.device = options.device;
  engine.threads = options.threads;
  if (options.on_load) engine.model.progress = [&](double share) { options.on_load(folder.string(), share); };
  auto opened = open_engine(folder, engine);
  if (const std::string& reason = opened->info().device_fallback; !reason.empty() && options.on_warning)
    options.on_warning(fmt::format("{} runs on the CPU: {}", folder.string(), reason));
  return opened;
}

std::vector<CalibrationHandOver> hand_overs_of(const ProfileOptions& options, const Model& model) {
  std::vector<CalibrationHandOver> hand_overs;
  for (const HandOver& one : options.data) hand_overs.push_back({one.producer, one.answer, one.before, one.after});
  if (!hand_overs.empty()) return hand_overs;
  return synthetic_hand_overs(model, options.hand_overs, options.max_tokens, options.seed);
}

ProfilerOptions profiler_of(const ProfileOptions& options) {
  ProfilerOptions profiler;
  profiler.max_tokens = options.max_tokens;
  profiler.min_tokens = std::min(profiler.min_tokens, options.max_tokens);
  profiler.seed = options.seed;
  profiler.stop = options.stop;
  return profiler;
}

std::optional<ModelProfile> profile(const ProfileOptions& options) {
  const auto folder = find_model(options.model);
  const auto engine = open(folder, options);
  const Model& model = engine->model();
  const auto hand_overs = hand_overs_of(options, model);
  ProfilerOptions profiler = profiler_of(options);
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

std::optional<LevelProfile> levels(const ProfileOptions& options) {
  constexpr std::int32_t kDocumentTokens = 192;  // maximum of a text that is handed over
  const auto folder = find_model(options.model);
  const auto engine = open(folder, options);
  const Model& model = engine->model();
  ProfilerOptions profiler = profiler_of(options);
  const auto hand_overs = level_hand_overs(model, options.hand_overs, profiler.max_tokens, options.seed);
  profiler.max_tokens = kDocumentTokens;
  profiler.on_progress = options.on_progress;
  const auto measured = measure_levels(*engine, hand_overs, profiler, {.first = hand_overs.size()});
  if (options.stop.stop_requested()) return std::nullopt;
  if (!measured)
    throw ModelError(
        fmt::format("{}: nothing could be measured: the model has too few layers that keep KV, or its "
                    "answers are too short",
                    folder.string()));
  LevelProfile result{.model = folder,
                      .fingerprint = model.fingerprint,
                      .hand_overs = static_cast<int>(hand_overs.size()),
                      .guard_scale = measured->guard_scale,
                      .json = to_json(StoredLevels{model.fingerprint, model.config.layers, "synthetic", *measured})};
  for (const RelayLevel& level : measured->levels) result.levels.push_back({level.reuse, level.divergence, level.high});
  return result;
}

LayerGroup public_group(const GroupPoint& point) { return {point.start, point.end, point.left}; }

std::optional<PairProfile> profile(const ProfileOptions& options, const PairOptions& pair) {
  const auto from = find_model(pair.author), to = find_model(options.model);
  const auto author = open(from, options), reader = open(to, options);
  const std::int32_t layers = reader->model().config.layers;
  ProfilerOptions profiler = profiler_of(options);
  profiler.on_progress = options.on_progress;
  const auto measured = measure_groups(*author, *reader, hand_overs_of(options, reader->model()), profiler,
                                       {.step = pair.step, .left = pair.left});
  if (!measured || options.stop.stop_requested()) return std::nullopt;
  if (!measured->problem.empty()) throw ModelError(fmt::format("{}: {}", to.string(), measured->problem));
  const StoredPair stored{author->model().fingerprint,
                          reader->model().fingerprint,
                          layers,
                          options.data.empty() ? "synthetic" : options.source,
                          pair.left,
                          *measured};
  PairProfile result{.author = from,
                     .reader = to,
                     .layers = layers,
                     .source = stored.source,
                     .hand_overs = measured->hand_overs,
                     .tokens = measured->tokens,
                     .kl_direct = measured->direct,
                     .weighty = measured->weighty};
  const LayerRange group = stored.group();
  for (const GroupPoint& point : frontier(measured->points)) result.best.push_back(public_group(point));
  for (const GroupPoint& point : measured->points) {
    if (point.start == group.start && point.end == group.end) result.group = public_group(point);
  }
  result.json = to_json(stored);
  return result;
}

/// PaperRanges of the laboratory: without a profile, from one that is made with synthetic hand-overs and kept in the
/// user's cache. (A run does not write into a model's folder; profile_model does.)
void find_paper_range(LocalEngine& engine, const std::optional<StoredProfile>& found,
                      const std::function<void(double share)>& on_progress, const std::stop_token& stop) {
  constexpr std::int32_t kHandOvers = 12;
  const Model& model = engine.model();
  std::optional<StoredProfile> profile = found;
  if (!profile) {
    ProfilerOptions options;
    options.on_progress = on_progress;
    options.stop = stop;
    const auto measured =
        measure_profile(engine, synthetic_hand_overs(model, kHandOvers, options.max_tokens, 0), options);
    if (on_progress) on_progress(1.0);  // whoever shows it can take it away
    if (!measured) return;
    profile = to_stored(*measured, model, "synthetic");
    if (const auto file = profile_in_cache(model.fingerprint); !file.empty()) {
      try {
        write_whole(file, to_json(*profile));
      } catch (const std::filesystem::filesystem_error&) {
        // The next process measures again.
      }
    }
  }
  update_calibration(engine, [&](Calibration& now) {
    now.paper_range = paper_range_of(*profile, rounding_of(model.options.kv_dtype), model.config.first_kv_reader());
  });
}

}  // namespace

void register_lab() {
  register_lab_methods();
  set_paper_ranges(find_paper_range);
}

std::optional<ModelProfile> profile_model(const ProfileOptions& options) {
  check(options);
  if (!parse_reading(options.reading))
    throw InputError(fmt::format("unknown reading '{}'; expected one of slope, level, effect", options.reading));
  return with_resource_errors([&] { return profile(options); });
}

namespace {

/// Into the model's folder, or into the cache if that is not writable. Returns the file.
std::filesystem::path save(const std::filesystem::path& beside, const std::filesystem::path& cache,
                           const std::string& json) {
  return with_resource_errors([&] {
    try {
      write_whole(beside, json);
      return beside;
    } catch (const std::filesystem::filesystem_error&) {
      if (cache.empty()) throw;
    }
    write_whole(cache, json);
    return cache;
  });
}

}  // namespace

std::filesystem::path save_profile(const ModelProfile& profile) {
  return save(profile_beside(profile.model), profile_in_cache(profile.fingerprint), profile.json);
}

std::optional<LevelProfile> profile_levels(const ProfileOptions& options) {
  check(options);
  return with_resource_errors([&] { return levels(options); });
}

std::filesystem::path save_profile(const LevelProfile& profile) {
  return save(levels_beside(profile.model), levels_in_cache(profile.fingerprint), profile.json);
}

std::optional<PairProfile> profile_pair(const ProfileOptions& options, const PairOptions& pair) {
  check(options);
  if (pair.step < 1) throw InputError(fmt::format("step: expected at least 1, found {}", pair.step));
  if (!(pair.left >= 0.0 && pair.left <= 1.0))
    throw InputError(fmt::format("left: expected a value in [0, 1], found {}", pair.left));
  return with_resource_errors([&] { return profile(options, pair); });
}

std::filesystem::path save_profile(const PairProfile& profile) {
  return with_resource_errors([&] {
    const StoredPair stored = parse_pair(profile.json, "the profile");
    const auto file = pair_in_cache(stored.author, stored.reader);
    if (file.empty())
      throw ModelError("neither XDG_CACHE_HOME nor HOME is set, so that the user's cache folder is unknown");
    write_whole(file, profile.json);
    return file;
  });
}

}  // namespace baton::inline v1::lab
