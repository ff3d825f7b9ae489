// SPDX-License-Identifier: Apache-2.0
// Learned corrections on disk: baton.corrections.safetensors beside the model or, where that cannot be written, in the
// user's cache. For each place "CONTEXT/SLOT/" + encoder, decoder (BF16), bias, measured (F32: left, texts); and
// "checksum" (I64): of the model's fingerprint, and of all bytes of the other tensors.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/model/model.h"
#include "engine/reuse/corrections/linear_correction.h"

namespace baton {

/// Replaces the file at once or not at all; makes its folder where need be. Throws std::filesystem::filesystem_error.
void save_corrections(const std::filesystem::path& file, const Model& model, const Corrections& corrections);

/// Nothing in the file is trusted. Throws ModelError: not such a file, damaged, or of another model.
Corrections load_corrections(const std::filesystem::path& file, const Model& model);

/// file_beside(model, "baton.corrections.safetensors").
std::filesystem::path corrections_beside(const std::filesystem::path& model);
/// In $XDG_CACHE_HOME/baton/profiles or ~/.cache/baton/profiles, named by fingerprint; empty without a home.
std::filesystem::path corrections_in_cache(const std::string& fingerprint);

}  // namespace baton
