// SPDX-License-Identifier: Apache-2.0
// The group of layers that one model recomputes in KV of another (method droidspeak), measured once for each pair and
// stored in the user's cache. docs/cli.md describes the format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/learning/effect_profiler.h"
#include "engine/model/model.h"

namespace baton {

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

}  // namespace baton
