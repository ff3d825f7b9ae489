// SPDX-License-Identifier: Apache-2.0
// A model's profile on disk: baton.profile.json beside the model or, where that cannot be written, in the user's cache.
// The format is in docs/cli.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/learning/profiler.h"
#include "engine/model/model.h"
#include "engine/reuse/profile/range_search.h"

namespace baton {

/// What the range of layers is read from: how similar values are (two readings of RelayCaching's eq. 3), or what
/// recomputing them is worth.
enum class RangeReading : std::uint8_t { slope, level, effect };
const char* name_of(RangeReading reading);
std::optional<RangeReading> parse_reading(std::string_view name);

struct StoredProfile {
  std::string fingerprint;  // Model::fingerprint: configuration, headers and a sample of the weights
  std::string source;       // of the hand-overs: "synthetic", or the name of the data
  std::int32_t hand_overs = 0;
  std::int64_t tokens = 0;
  std::vector<double> similarity;         // [L]
  std::vector<double> similarity_error;   // [L]; NaN: not known
  std::vector<double> correlation;        // [L - 1]; NaN: not known
  std::vector<double> correlation_error;  // [L - 1]; NaN: not known
  LayerRange slope;
  LayerRange level;
  Agreement slope_agreement;
  Agreement level_agreement;
  std::optional<LayerEffect> effect;           // with a range; none: not measured
  RangeReading reading = RangeReading::slope;  // the one that counts; effect only where there is one

  const LayerRange& range() const {
    return reading == RangeReading::effect ? effect->range : reading == RangeReading::level ? level : slope;
  }
};

/// What was measured on `model`; the reading is slope. Throws ModelError where no range could be found.
StoredProfile to_stored(const MeasuredProfile& measured, const Model& model, std::string source);

std::string to_json(const StoredProfile& profile);

/// The file's text may be anything. Throws ModelError naming `origin`, the field, what it is and what it should be.
StoredProfile parse_profile(std::string_view text, const std::string& origin);

/// file_beside(model, "baton.profile.json").
std::filesystem::path profile_beside(const std::filesystem::path& model);
/// In $XDG_CACHE_HOME/baton/profiles or ~/.cache/baton/profiles, named by fingerprint; empty without a home.
std::filesystem::path profile_in_cache(const std::string& fingerprint);

/// The file's text, or nothing when there is none. Throws ModelError: not a file, or too large for a profile.
std::optional<std::string> read_profile_file(const std::filesystem::path& file);

struct FoundProfile {
  std::optional<StoredProfile> profile;
  std::filesystem::path file;  // where it was read
  std::string ignored;         // why a profile beside the model was not taken, or empty
};

/// The profile beside the model, else the one in the cache; one of another model is ignored. Throws ModelError for a
/// file that is not a profile.
FoundProfile find_profile(const Model& model);

/// Writes a file whole or not at all; makes its folder where need be. Throws std::filesystem::filesystem_error.
void write_whole(const std::filesystem::path& file, std::string_view text);

}  // namespace baton
