// SPDX-License-Identifier: Apache-2.0
// Session files: what the agents of a session remember, with its KV.
#pragma once

#include <filesystem>

#include "sdk/src/internal.h"
#include "sdk/src/open_models.h"

namespace baton::inline v1 {

struct SavedSession {
  SessionMemory memory;
  int runs = 0;
};

/// `open`: the session's workflow with its models. Throws ResourceError.
void write_session(const std::filesystem::path& file, const SavedSession& session, const OpenPlan& open);

/// Throws InputError for a file that is missing, damaged, of another version or of another workflow or model, and
/// ResourceError when there is no memory.
SavedSession read_session(const std::filesystem::path& file, const OpenPlan& open);

}  // namespace baton::inline v1
