// SPDX-License-Identifier: Apache-2.0
// The GGUF files of the folder that BATON_TEST_MODELS names.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/model/model.h"

namespace baton::test {

/// The smallest first. Without any a line says why; CTest lists the test as not run.
inline std::vector<std::filesystem::path> published_models() {
  namespace fs = std::filesystem;
  std::vector<fs::path> models;
  const char* folder = std::getenv("BATON_TEST_MODELS");
  if (folder == nullptr) {
    std::puts("SKIPPED: BATON_TEST_MODELS names no folder");
    return models;
  }
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf" && is_model(entry.path())) models.push_back(entry.path());
  std::ranges::sort(models, {}, [](const fs::path& path) { return fs::file_size(path); });
  if (models.empty()) std::printf("SKIPPED: there is no .gguf file in %s\n", folder);
  return models;
}

}  // namespace baton::test
