// SPDX-License-Identifier: Apache-2.0
// What method auto knows of a model, on disk: its relay levels (baton.levels.json in the model's folder, else in the
// user's cache) and the history of its places (in the cache). docs/cli.md describes the formats.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/model/model.h"
#include "engine/reuse/auto/levels.h"

namespace baton {
struct StoredLevels {
  std::string fingerprint;  // Model::fingerprint
  std::int32_t layers = 0;  // L
  std::string source;       // of the hand-overs: "synthetic", or the name of the data
  RelayLevels levels;       // at least one
};

std::string to_json(const StoredLevels& stored);

/// Parses untrusted text. Throws ModelError that names `origin`, the field, the value found and the one expected.
StoredLevels parse_levels(std::string_view text, const std::string& origin);

/// file_beside(model, "baton.levels.json").
std::filesystem::path levels_beside(const std::filesystem::path& model);
/// The path among the profiles in the user's cache; empty without a home.
std::filesystem::path levels_in_cache(const std::string& fingerprint);

/// Returns the levels in the model's folder, else those in the cache, else those in levels/FINGERPRINT.json of an
/// installed folder, the first that has them. Levels of another model are ignored, and so is a file that does not hold
/// levels. Throws ModelError for such a file in the model's folder.
std::optional<StoredLevels> find_levels(const Model& model, std::span<const std::filesystem::path> installed = {});

struct StoredPlaces {
  std::string fingerprint;  // Model::fingerprint
  RelayHistory history;
};

std::string to_json(const StoredPlaces& stored);

/// Parses untrusted text. Throws ModelError that names `origin`, the field, the value found and the one expected.
StoredPlaces parse_places(std::string_view text, const std::string& origin);

/// The path among the profiles in the user's cache; empty without a home.
std::filesystem::path places_in_cache(const std::string& fingerprint);

/// Returns the history in the cache. Nothing where there is none, or where the file is damaged or of another model.
std::optional<RelayHistory> find_places(const std::string& fingerprint);

}  // namespace baton
