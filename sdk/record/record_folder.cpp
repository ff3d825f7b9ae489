// SPDX-License-Identifier: Apache-2.0
#include "sdk/record/record_folder.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include <baton/errors.h>

#include "engine/base/atomic_file.h"
#include "engine/base/system/process.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;

RecordFolder::RecordFolder(const fs::path& folder, bool replace)
    : folder_(fs::absolute(folder).lexically_normal()), replace_(replace) {
  if (folder_.filename().empty()) folder_ = folder_.parent_path();  // "runs/1/" is "runs/1"
  std::error_code error;
  if (replace_ && fs::exists(folder_ / "run.json", error)) return;
  if (fs::exists(folder_, error) && !(fs::is_directory(folder_, error) && fs::is_empty(folder_, error)))
    throw InputError(fmt::format("record: the folder {} exists already; give a new one", folder_.string()));
}

void RecordFolder::write(const fs::path& aside) const {
  try {
    fs::create_directories(aside);
  } catch (const fs::filesystem_error& error) {
    throw std::runtime_error(fmt::format("cannot make the folder {}: {}", folder_.string(), error.code().message()));
  }
  for (const auto& [name, bytes] : files_) {
    try {
      write_whole(aside / name, bytes);
    } catch (const fs::filesystem_error& error) {
      throw std::runtime_error(fmt::format("cannot write {}: {}", name, error.code().message()));
    }
  }
  if (!replace_ || !fs::exists(folder_ / "run.json")) return fs::rename(aside, folder_);
  replace_by(aside);
}

void RecordFolder::replace_by(const fs::path& aside) const {
  std::vector<fs::path> names;  // what others have put next to the old record stays
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (fs::path name = entry.path().filename(); !fs::exists(aside / name)) names.push_back(std::move(name));
  }
  const fs::path old = fs::path(aside) += ".old";
  std::error_code ignored;
  std::size_t moved = 0;
  fs::rename(folder_, old);
  try {
    for (; moved < names.size(); ++moved) fs::rename(old / names[moved], aside / names[moved]);
    fs::rename(aside, folder_);
  } catch (...) {
    while (moved-- > 0) fs::rename(aside / names[moved], old / names[moved], ignored);
    fs::rename(old, folder_, ignored);
    throw;
  }
  fs::remove_all(old, ignored);  // the new record is in its place
}

void RecordFolder::commit() const {
  const fs::path aside =
      folder_.parent_path() / fmt::format(".{}.part-{}", folder_.filename().string(), process_number());
  const auto remove = [&] {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
  };
  remove();
  try {
    write(aside);
  } catch (...) {
    remove();
    throw;
  }
}

}  // namespace baton::inline v1
