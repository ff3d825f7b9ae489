// SPDX-License-Identifier: Apache-2.0
// What tells two models apart: every byte of their files. What is stored for a model is keyed by it.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "engine/base/files.h"

namespace baton {

/// XXH3-128 over the settings and every byte of the files, as 32 hexadecimal digits. The hash of a large file is kept
/// in the user's cache by the file's path, size and time of change, and is then not computed again. Empty if it was
/// stopped. Throws ModelError if a file cannot be read. Safe from any thread.
std::string fingerprint_of(std::string_view settings, std::span<const InputFile* const> files,
                           const std::stop_token& stop = {});

}  // namespace baton
