// SPDX-License-Identifier: Apache-2.0
// Which group of layers one model recomputes in KV that another made (method droidspeak), measured once for a pair and
// kept in the user's cache. The format is in docs/cli.md.
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
  std::int32_t layers = 0;  // of each
  std::string source;       // of the hand-overs: "synthetic", or the name of the data
  double left = 0.1;        // what the group may leave of direct reuse's divergence
  GroupEffect effect;

  LayerRange group() const { return cheapest_group(effect.points, left, layers); }
};

std::string to_json(const StoredPair& profile);

/// The file's text may be anything. Throws ModelError naming `origin`, the field, what it is and what it should be.
StoredPair parse_pair(std::string_view text, const std::string& origin);

/// Beside the profiles of models in the user's cache, named by both fingerprints; empty without a home.
std::filesystem::path pair_in_cache(const std::string& author, const std::string& reader);

/// What the cache has of these two. Throws ModelError for a file that is not a profile, or not of them.
std::optional<StoredPair> find_pair(const Model& author, const Model& reader);

}  // namespace baton
