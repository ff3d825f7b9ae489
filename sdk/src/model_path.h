// SPDX-License-Identifier: Apache-2.0
// Where a model is: a path as it stands, a bare name looked for in the usual places (baton/system.h), or a published
// model in the cache (sdk/hub).
#pragma once

#include <filesystem>
#include <string>

namespace baton::inline v1 {

/// `model` as written in a workflow or an option; relative paths start in `base`, "hf:org/name" and URLs mean what was
/// pulled. A folder counts when it holds
/// config.json, and a file when it is a .gguf one. Throws ResourceError, whose message lists the folders that were
/// searched.
std::filesystem::path find_model(const std::string& model, const std::filesystem::path& base);

}  // namespace baton::inline v1
