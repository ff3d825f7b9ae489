// SPDX-License-Identifier: Apache-2.0
// Published models that are in a cache already: no network.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sdk/hub/model_source.h"

namespace baton {

/// The GGUF file or the model folder that a source means, pulled by Baton or by another tool that shares the cache.
/// Throws ModelError, whose message names the folder that was searched and the command that pulls the model.
std::filesystem::path find_pulled(const ModelSource& source);

struct PulledModel {
  std::string name;  // as find_model() takes it: "hf:org/name", "hf:org/name:FILE"
  std::filesystem::path path;
};

/// The models of the hub's cache at revision main: of each repository its folder, or its GGUF files.
std::vector<PulledModel> pulled_models();

}  // namespace baton
