// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "engine/model/model_files.h"

namespace baton {

/// open_model_files of a GGUF file. Throws ModelError.
std::unique_ptr<ModelFiles> open_gguf_model(const std::filesystem::path& path);

}  // namespace baton
