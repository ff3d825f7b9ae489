// SPDX-License-Identifier: Apache-2.0
// A model's profile on disk: baton.profile.json in the model's folder or, where that is not writable, in the user's
// cache. docs/cli.md describes the format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/learning/effect_profiler.h"
#include "engine/learning/profiler.h"
#include "engine/model/model.h"

namespace baton {

/// The measurement that gives the layer range: the similarity of values (two readings of RelayCaching's eq. 3), or the
/// effect of recomputing layers.
enum class RangeReading : std::uint8_t { slope, level, effect };
const char* name_of(RangeReading reading);
std::optional<RangeReading> parse_reading(std::string_view name);

struct StoredProfile {
  std::string fingerprint;  // Model::fingerprint: configuration, headers and a sample of the weights
  std::string source;       // source of the hand-overs: "synthetic", or the name of the data
  std::int32_t hand_overs = 0;
  std::int64_t tokens = 0;
  std::vector<double> similarity;         // [L]
  std::vector<double> similarity_error;   // [L]; NaN: unknown
  std::vector<double> correlation;        // [L - 1]; NaN: unknown
  std::vector<double> correlation_error;  // [L - 1]; NaN: unknown
  LayerRange slope;
  LayerRange level;
  Agreement slope_agreement;
  Agreement level_agreement;
  std::optional<LayerEffect> effect;           // only with a range; empty: not measured
  RangeReading reading = RangeReading::slope;  // the reading in use; `effect` only when there is one

  const LayerRange& range() const {
    return reading == RangeReading::effect ? effect->range : reading == RangeReading::level ? level : slope;
  }
};

/// The layers that RelayCaching's own rules find in a profile's curves: l_e by the slope (eq. 3), l_d where the second
/// difference of the correlation turns negative (eq. 4). `rounding`: rounding_of the type of the measured caches.
LayerRange paper_range_of(const StoredProfile& profile, double rounding);

/// Makes the profile of a measurement on `model`; the reading is slope. Throws ModelError when no range was found.
StoredProfile to_stored(const MeasuredProfile& measured, const Model& model, std::string source);

std::string to_json(const StoredProfile& profile);

/// Parses untrusted text. Throws ModelError that names `origin`, the field, the value found and the one expected.
StoredProfile parse_profile(std::string_view text, const std::string& origin);

/// file_beside(model, "baton.profile.json").
std::filesystem::path profile_beside(const std::filesystem::path& model);
/// The path in $XDG_CACHE_HOME/baton/profiles or ~/.cache/baton/profiles, named by fingerprint; empty without a home.
std::filesystem::path profile_in_cache(const std::string& fingerprint);

/// Returns the file's text, or nothing when there is no file. Throws ModelError when the path is not a file, or when
/// the file is unreadable or too large for a profile.
std::optional<std::string> read_profile_file(const std::filesystem::path& file);

struct FoundProfile {
  std::optional<StoredProfile> profile;
  std::filesystem::path file;  // the file that was read
  std::string ignored;         // why the profile in the model's folder was not used, or empty
};

/// Returns the profile in the model's folder, else the one in the cache. A profile of another model is ignored. Throws
/// ModelError for a file that is not a profile.
FoundProfile find_profile(const Model& model);

}  // namespace baton
