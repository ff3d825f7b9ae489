// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "engine/base/unique_fd.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxCountedDepth = 64;
constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

/// Opens a folder in `parent`. Its owner may have left it without permissions.
UniqueFd open_folder(int parent, const char* name) {
  UniqueFd folder(openat(parent, name, kOpenFolder));
  if (folder || errno != EACCES) return folder;
  fchmodat(parent, name, S_IRWXU, AT_SYMLINK_NOFOLLOW);
  return UniqueFd(openat(parent, name, kOpenFolder));
}

/// A folder on the way down, to which the way up must lead: other processes of its owner may move what is below it.
struct Level {
  std::string below;  // the entry that was entered
  dev_t device = 0;
  ino_t inode = 0;

  bool is(int folder) const {
    struct stat found {};
    return fstat(folder, &found) == 0 && found.st_dev == device && found.st_ino == inode;
  }
};

/// Removes the files and the empty folders of a folder, up to the first folder that is not empty, and returns its name;
/// empty when nothing is left that can be removed.
std::string empty_up_to_folder(int folder) {
  const std::unique_ptr<DIR, CloseFolder> entries(fdopendir(openat(folder, ".", kOpenFolder)));
  if (!entries) return {};
  while (const dirent* entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (unlinkat(folder, entry->d_name, 0) == 0 || errno == ENOENT) continue;
    if (unlinkat(folder, entry->d_name, AT_REMOVEDIR) == 0) continue;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == EACCES) return entry->d_name;
  }
  return {};
}

}  // namespace

void remove_tree(const fs::path& folder) {
  // Goes down and up one level at a time: a path of thousands of levels is longer than the system allows, and so many
  // descriptors cannot be open at once.
  UniqueFd current(open_folder(AT_FDCWD, folder.c_str()));
  std::vector<Level> levels;  // from the folder to the current one
  while (current) {
    fchmod(current.get(), S_IRWXU);
    const std::string name = empty_up_to_folder(current.get());
    if (!name.empty()) {
      UniqueFd below = open_folder(current.get(), name.c_str());
      struct stat here {};
      if (!below || fstat(current.get(), &here) != 0) break;
      levels.push_back({name, here.st_dev, here.st_ino});
      current = std::move(below);
    } else {
      if (levels.empty()) break;
      current = UniqueFd(openat(current.get(), "..", kOpenFolder));
      if (!current || !levels.back().is(current.get())) break;
      if (unlinkat(current.get(), levels.back().below.c_str(), AT_REMOVEDIR) != 0) break;
      levels.pop_back();
    }
  }
  rmdir(folder.c_str());
}

SandboxFolder::SandboxFolder() {
  std::string name = (fs::temp_directory_path() / "baton-tool-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error(fmt::format("sandbox: cannot make the folder {}: {}", name, std::strerror(errno)));
  }
  path_ = name;
}

SandboxFolder::~SandboxFolder() { remove_tree(path_); }

void SandboxFolder::give_to(uid_t user, gid_t group) const {
  if (chown(path_.c_str(), user, group) != 0) {
    throw std::runtime_error(fmt::format("sandbox: cannot give away {}: {}", path_.string(), std::strerror(errno)));
  }
}

bool SandboxFolder::holds_more_than(int entries, std::uint64_t bytes) const {
  std::error_code error;
  std::uint64_t held = 0;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(path_, options, error), end; entry != end; entry.increment(error)) {
    struct stat found {};
    if (lstat(entry->path().c_str(), &found) == 0) held += static_cast<std::uint64_t>(found.st_blocks) * 512;
    if (--entries < 0 || held > bytes || entry.depth() > kMaxCountedDepth) return true;
  }
  return false;
}

}  // namespace baton
