// SPDX-License-Identifier: Apache-2.0
// What this machine has.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/backend/make_backend.h"
#include "sdk/src/internal.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;
namespace {

DeviceInfo describe_device(const std::string& name) {
  try {
    const BackendInfo info = make_backend({name, 0})->info();
    return {info.name, info.device, {}};
  } catch (const std::exception& error) {
    return {name, {}, error.what()};
  }
}

ModelInfo describe_model(const fs::path& folder) {
  ModelInfo info;
  info.name = folder.filename().string();
  info.path = folder;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    if (const auto bytes = entry.file_size(error); !error) info.bytes += static_cast<std::int64_t>(bytes);
  }
  if (info.bytes == 0) info.problem = "no .safetensors file";
  try {
    std::ostringstream text;
    text << std::ifstream(folder / "config.json").rdbuf();
    const ModelConfig config = parse_config(text.str(), (folder / "config.json").string());
    info.architecture = config.architecture;
    info.layers = config.layers;
    info.context = config.context;
  } catch (const std::exception& problem) {
    info.problem = problem.what();
  }
  return info;
}

}  // namespace

std::vector<DeviceInfo> devices() { return {describe_device("cpu"), describe_device("cuda")}; }

std::vector<ModelInfo> models() {
  std::vector<ModelInfo> models;
  for (const auto& folder : model_search_path()) {
    std::error_code error;
    std::vector<fs::path> here;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (fs::is_regular_file(entry.path() / "config.json", error)) here.push_back(entry.path());
    }
    std::sort(here.begin(), here.end());
    for (const auto& model : here) {
      const auto same_name = [&](const ModelInfo& other) { return other.name == model.filename().string(); };
      if (std::none_of(models.begin(), models.end(), same_name)) models.push_back(describe_model(model));
    }
  }
  return models;
}

}  // namespace baton::inline v1
