// SPDX-License-Identifier: Apache-2.0
// What this machine has: devices, and the models that a bare name finds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace baton::inline v1 {

struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "Intel Xeon ..., AVX-512, 2 threads"
  std::string problem;      // why it cannot be used, or empty
};

/// The CPU, and the first CUDA device or why it cannot be used.
std::vector<DeviceInfo> devices();

struct ModelInfo {
  std::string name;
  std::filesystem::path path;
  std::string architecture;
  int layers = 0;
  int context = 0;
  std::int64_t bytes = 0;  // of the weights' files
  std::string problem;     // why it cannot be used, as far as can be told from its configuration, or empty
};

/// Every model in the search path, the first of each name.
std::vector<ModelInfo> models();

/// The folders in which bare names are looked for, in order.
std::vector<std::filesystem::path> model_search_path();

/// The folder of a model: a path, from the current folder, or a bare name. Throws ResourceError, whose message lists
/// the folders that were searched.
std::filesystem::path find_model(const std::string& model);

}  // namespace baton::inline v1
