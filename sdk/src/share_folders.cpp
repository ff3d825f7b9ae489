// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/model_path.h"

#include <algorithm>

#include <baton/system.h>
#include <baton/version.h>

#include "engine/base/system/process.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;
namespace {

/// The file that this code was loaded from: a program or a shared library.
fs::path own_module() { return module_of(reinterpret_cast<const void*>(&own_module)); }

}  // namespace

std::vector<fs::path> entries_where(const fs::path& folder, const std::function<bool(const fs::path&)>& wanted) {
  constexpr int kMaxLooked = 1000;  // entries
  std::vector<fs::path> found;
  std::error_code error;
  int looked = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && ++looked <= kMaxLooked;
       at.increment(error)) {
    if (wanted(at->path())) found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> workflow_files(const fs::path& folder) {
  return entries_where(folder, [](const fs::path& file) {
    const std::string ending = file.extension().string();
    std::error_code error;
    return (ending == ".yaml" || ending == ".yml") && fs::is_regular_file(file, error);
  });
}

std::vector<fs::path> share_folders() {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    const fs::path normal = folder.lexically_normal();
    if (std::find(folders.begin(), folders.end(), normal) == folders.end()) folders.push_back(normal);
  };
  std::error_code error;
  if (const fs::path program = own_program(); !program.empty()) add(program.parent_path() / "../share/baton");
  if (const fs::path module = own_module(); !module.empty()) {
    for (const char* up : {"../share/baton", "../../share/baton"}) {  // from lib, from lib/x86_64-linux-gnu
      if (fs::is_directory(module.parent_path() / up, error)) add(module.parent_path() / up);
    }
  }
#ifndef _WIN32
  if (&baton_package_share != nullptr) add(baton_package_share());
#endif
  if (fs::is_directory(BATON_SHARE, error)) add(BATON_SHARE);
  return folders;
}

fs::path find_workflow(const fs::path& file) {
  std::error_code error;
  if (file.empty() || file.has_parent_path() || file.has_extension() || fs::is_regular_file(file, error)) return file;
  for (const fs::path& share : share_folders()) {
    const fs::path installed = share / "workflows" / (file.string() + ".yaml");
    if (fs::is_regular_file(installed, error)) return installed;
  }
  return file;
}

std::vector<std::string> workflows() {
  std::vector<std::string> names;
  for (const fs::path& share : share_folders()) {
    for (const fs::path& file : workflow_files(share / "workflows")) names.push_back(file.stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

const char* version() noexcept { return BATON_VERSION; }

}  // namespace baton::inline v1
