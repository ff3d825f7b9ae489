// SPDX-License-Identifier: Apache-2.0
// Anchors between processes: one file for one model, checksummed and mapped into memory, so that pools of gigabytes are
// there at once and only what is read takes memory.
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

/// What anchors of this model are keyed by: its weights and its tokenizer.
std::string anchor_model_key(const Model& model);

/// Writes all pools; an existing file is replaced at once or not at all. Throws AnchorFileError.
void save_anchors(const std::filesystem::path& file, const std::string& model_key, const AnchorStore& store);

/// Adds the pools of the file to the store. Throws AnchorFileError, the store being as it was, when the file is
/// damaged, of another model, shape or version. Returns the number of anchors.
std::int64_t load_anchors(const std::filesystem::path& file, const std::string& model_key, AnchorShape shape,
                          AnchorStore& store);

}  // namespace baton
