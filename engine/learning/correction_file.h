// SPDX-License-Identifier: Apache-2.0
// Learned corrections on disk: baton.corrections.safetensors in the model's folder or, where that is not writable, in
// the user's cache. The file holds, for each place, "CONTEXT/SLOT/" + encoder, decoder (BF16), bias, measured (F32:
// left, texts), and "checksum" (I64): hashes of the model's fingerprint and of all bytes of the other tensors.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/model/model.h"
#include "engine/reuse/rectify/corrections.h"

namespace baton {

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
