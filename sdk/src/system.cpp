// SPDX-License-Identifier: Apache-2.0
// What this machine has.
#include <algorithm>

#include "agents/tools/tool.h"
#include "engine/backend/make_backend.h"
#include "sdk/hub/hub_cache.h"
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

ModelInfo model_info(const fs::path& path) {
  ModelInfo info;
  info.name = path.filename().string();
  info.path = path;
  try {
    const auto files = open_model_files(path);
    const ModelConfig config = files->config();
    info.architecture = config.architecture;
    info.layers = config.layers;
    info.context = config.context;
    info.bytes = static_cast<std::int64_t>(files->bytes());
  } catch (const std::exception& problem) {
    info.problem = problem.what();
  }
  return info;
}

std::vector<PulledModel> pulled_here() {
  try {
    return pulled_models();
  } catch (const std::exception&) {
    return {};  // without a home there is no cache
  }
}

}  // namespace

std::vector<IsolationFact> isolation() { return ToolRegistry::with_builtins().find("python")->isolation(); }

std::vector<DeviceInfo> devices() { return {describe_device("cpu"), describe_device("cuda")}; }

std::vector<ModelInfo> models() {
  std::vector<ModelInfo> models;
  for (const auto& folder : model_search_path()) {
    std::error_code error;
    std::vector<fs::path> here;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (is_model(entry.path())) here.push_back(entry.path());
    }
    std::sort(here.begin(), here.end());
    for (const auto& model : here) {
      const auto same_name = [&](const ModelInfo& other) { return other.name == model.filename().string(); };
      if (std::none_of(models.begin(), models.end(), same_name)) models.push_back(model_info(model));
    }
  }
  for (const PulledModel& pulled : pulled_here()) {
    ModelInfo info = model_info(pulled.path);
    info.name = pulled.name;
    if (info.problem.empty()) models.push_back(std::move(info));  // other tools' models share the cache
  }
  return models;
}

}  // namespace baton::inline v1
