// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/environment.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/errors.h"
#include "engine/base/system/folders.h"

namespace baton {
namespace fs = std::filesystem;

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : value;
}

bool environment_flag(const char* variable) {
  std::string value = environment(variable);
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::transform(value.begin(), value.end(), value.begin(), lower);
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

fs::path home_expanded(const std::string& path) {
  const fs::path home = home_folder();
  if (!home.empty() && path.starts_with("~/")) return home / path.substr(2);
  return path;
}

fs::path cache_home() {
  if (const std::string folder = environment("XDG_CACHE_HOME"); !folder.empty()) return home_expanded(folder);
  const fs::path home = home_folder();
  if (home.empty())
    throw ModelError("neither XDG_CACHE_HOME nor HOME is set, so that the user's cache folder is unknown");
  return home / ".cache";
}

fs::path hub_home() {
  if (const std::string folder = environment("HF_HOME"); !folder.empty()) return home_expanded(folder);
  return cache_home() / "huggingface";
}

bool hub_offline() { return environment_flag("HF_HUB_OFFLINE") || environment_flag("TRANSFORMERS_OFFLINE"); }

std::string hub_endpoint() {
  std::string endpoint = environment("HF_ENDPOINT");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint.empty() ? "https://huggingface.co" : endpoint;
}

}  // namespace baton
