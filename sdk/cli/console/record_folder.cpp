// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/record_folder.h"

#include <fmt/format.h>

#include <cstring>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/whole_file.h"

namespace baton::cli {
namespace fs = std::filesystem;

RecordFolder::RecordFolder(fs::path folder, bool replace)
    : folder_(fs::absolute(std::move(folder)).lexically_normal()), replace_(replace) {
  if (folder_.filename().empty()) folder_ = folder_.parent_path();  // "runs/1/" is "runs/1"
  std::error_code error;
  if (replace_ && fs::exists(folder_ / "run.json", error)) return;
  if (fs::exists(folder_, error) && !(fs::is_directory(folder_, error) && fs::is_empty(folder_, error))) {
    throw Failure(kUsage, fmt::format("--record {}: the folder exists already; give a new one", folder_.string()));
  }
}

void RecordFolder::commit() const {
  const auto write = [&](const fs::path& aside) {
    for (const auto& [name, bytes] : files_) {
      const fs::path path = aside / name;
      fs::create_directories(path.parent_path());
      if (const int error = write_new_file(path, bytes); error != 0)
        throw std::runtime_error(fmt::format("cannot write {}: {}", name, std::strerror(error)));
    }
    if (!replace_ || !fs::exists(folder_ / "run.json")) return fs::rename(aside, folder_);
    // What others have put next to the old record stays.
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      if (const fs::path name = entry.path().filename(); !fs::exists(aside / name))
        fs::rename(entry.path(), aside / name);
    }
    const fs::path old = fs::path(aside) += ".old";
    fs::rename(folder_, old);
    fs::rename(aside, folder_);
    fs::remove_all(old);
  };
  const auto remove = [](const fs::path& aside) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
  };
  try {
    write_aside(folder_, write, remove);
  } catch (const std::exception& error) {
    throw Failure(kRunFailed, fmt::format("--record {}: {}", folder_.string(), error.what()));
  }
}

}  // namespace baton::cli
