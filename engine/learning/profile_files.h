// SPDX-License-Identifier: Apache-2.0
// The files that baton-lab makes of what it has measured and learned, and that all programs read: the layers that
// rectify recomputes (baton.profile.json in the model's folder, else in the user's cache), the group of layers that
// droidspeak recomputes in KV of another model (in the cache), and learned corrections. docs/cli.md and docs/lab.md
// describe them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"
#include "engine/reuse/options.h"
#include "engine/reuse/rectify/corrections.h"

namespace baton {

/// The smallest number of layers with a choice of l_s < l_d < l_e.
inline constexpr std::int32_t kMinRangeLayers = 4;

/// The fractions of resamples that gave the same layer.
struct Agreement {
  double start = 0.0;
  double detect = 0.0;
  double end = 0.0;
  double all = 0.0;  // all three layers are the same
};

/// The measured effect of recomputing layers. The curves are fractions of direct reuse's divergence; NaN: not measured.
struct LayerEffect {
  LayerRange range;
  double direct = 0.0;         // divergence of direct reuse, nats per token
  double weighty = 0.0;        // effective number of hand-overs: (sum d)^2 / sum d^2
  std::vector<double> start;   // [L] all reused tokens are recomputed from layer l to the last
  std::vector<double> end;     // [L] all reused tokens are recomputed from range.start to l
  std::vector<double> detect;  // [L] the tokens chosen in l are recomputed up to range.end
  std::string problem;         // why no range was found, or empty
};

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

/// The fraction of direct reuse's divergence that remains when the reader recomputes layers [start, end] for all reused
/// tokens.
struct GroupPoint {
  std::int32_t start = 0, end = 0;
  double left = 0.0;
  std::int32_t layers() const { return end - start + 1; }
  bool operator==(const GroupPoint&) const = default;
};

struct GroupEffect {
  double direct = 0.0;             // divergence of direct reuse, nats per token
  double weighty = 0.0;            // effective number of hand-overs (LayerEffect::weighty)
  std::vector<GroupPoint> points;  // all measured groups
  std::int32_t hand_overs = 0;     // number of measured hand-overs
  std::int64_t tokens = 0;         // number of compared tokens of answers
  std::string problem;             // why there are no points, or empty
};

/// Returns the Pareto frontier of the points, fewer layers first (DroidSpeak, section 4).
std::vector<GroupPoint> frontier(std::vector<GroupPoint> points);
/// Returns the cheapest group that leaves at most `left`, or [0, layers - 1] when there is none.
LayerRange cheapest_group(const std::vector<GroupPoint>& points, double left, std::int32_t layers);
/// Returns the last layers of `group` and of the larger groups that begin in the same layer and leave less than every
/// smaller one of them, ascending.
std::vector<std::int32_t> ends_of(const LayerRange& group, std::vector<GroupPoint> points);

struct StoredPair {
  std::string author;  // fingerprints
  std::string reader;
  std::int32_t layers = 0;  // L of both models
  std::string source;       // source of the hand-overs: "synthetic", or the name of the data
  double left = 0.1;        // fraction of direct reuse's divergence that the group may leave
  GroupEffect effect;

  LayerRange group() const { return cheapest_group(effect.points, left, layers); }
};

std::string to_json(const StoredPair& profile);

/// Parses untrusted text. Throws ModelError that names `origin`, the field, the value found and the one expected.
StoredPair parse_pair(std::string_view text, const std::string& origin);

/// The path among the profiles in the user's cache, named by both fingerprints; empty without a home.
std::filesystem::path pair_in_cache(const std::string& author, const std::string& reader);

/// Returns the cached profile of two models, if any. Throws ModelError for a file that is not a profile, or that
/// belongs to other models.
std::optional<StoredPair> find_pair(const Model& author, const Model& reader);

/// Learned corrections: baton.corrections.safetensors in the model's folder or, where that is not writable, in the
/// user's cache. The file holds, for each place, "CONTEXT/SLOT/" + encoder, decoder (BF16), bias, measured (F32: left,
/// texts), and "checksum" (I64): hashes of the model's fingerprint and of all bytes of the other tensors.
/// Replaces the file atomically and makes its folder if need be. Throws std::filesystem::filesystem_error.
void save_corrections(const std::filesystem::path& file, const Model& model, const Corrections& corrections);

/// Reads and validates the file, whose content is untrusted. Throws ModelError when it has another format, is damaged
/// or belongs to another model.
Corrections load_corrections(const std::filesystem::path& file, const Model& model);

/// file_beside(model, "baton.corrections.safetensors").
std::filesystem::path corrections_beside(const std::filesystem::path& model);
/// The path in $XDG_CACHE_HOME/baton/profiles or ~/.cache/baton/profiles, named by fingerprint; empty without a home.
std::filesystem::path corrections_in_cache(const std::string& fingerprint);

}  // namespace baton
