// SPDX-License-Identifier: Apache-2.0
// The history of a model's places on disk, in the user's cache, next to its levels. docs/cli.md describes the format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/reuse/relay_history.h"

namespace baton {

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
