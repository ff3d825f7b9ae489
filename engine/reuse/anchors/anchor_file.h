// SPDX-License-Identifier: Apache-2.0
// Anchor files: one checksummed file for one model. Each anchor is read into memory of its own, which ends with it; a
// memory map would end the process when another one truncates the file (docs/decisions/memory.md).
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include "engine/reuse/anchors/anchor_store.h"

namespace baton {

class AnchorFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes all pools; an existing file is replaced atomically. Throws AnchorFileError when writing fails.
void save_anchors(const std::filesystem::path& file, const std::string& model_key, const AnchorStore& store);

/// Adds the pools of the file to the store and returns the number of anchors. Throws AnchorFileError and leaves the
/// store unchanged when the file is damaged or belongs to another model, shape or version.
std::int64_t load_anchors(const std::filesystem::path& file, const std::string& model_key, KvWidth shape,
                          AnchorStore& store);

}  // namespace baton
