// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_view.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "engine/base/system/unique_fd.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr auto kOpenToAll = fs::perms(0755);

/// Makes `path` and all folders between it and `root`; any user may enter them.
void make_folders(const fs::path& root, const fs::path& path) {
  fs::path folder = root;
  for (const fs::path& part : path.relative_path()) {
    folder /= part;
    if (fs::create_directory(folder)) fs::permissions(folder, kOpenToAll);
  }
}

/// A file to mount on. One that was not made would fail later, as if mounting were not allowed.
void make_file(const fs::path& path) {
  if (UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600))) return;
  throw fs::filesystem_error("sandbox: cannot make a file", path, std::error_code(errno, std::generic_category()));
}

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(path.begin(), path.end(), folder.begin(), folder.end()).second == folder.end();
}

}  // namespace

SandboxView make_sandbox_view(const fs::path& root, std::vector<fs::path> readable, const fs::path& program) {
  SandboxView view;
  view.root = root.string();
  fs::permissions(root, kOpenToAll);
  std::error_code ignored;
  for (fs::path& path : readable) path = path.lexically_normal();
  std::sort(readable.begin(), readable.end());  // a folder stands in front of what is in it
  readable.erase(std::unique(readable.begin(), readable.end()), readable.end());
  fs::path last = "/";
  for (const fs::path& path : readable) {
    if (!fs::exists(path, ignored) || (last.has_relative_path() && is_below(path, last))) continue;
    const fs::path target = root / path.relative_path();
    if (fs::is_directory(path)) {
      make_folders(root, path);
      last = path;
    } else {
      make_folders(root, path.parent_path());
      make_file(target);
    }
    view.mounts.push_back({path.string(), target.string(), fs::is_character_file(path)});
  }
  make_folders(root, "/proc/self");
  if (!program.empty()) fs::create_symlink(program, root / "proc/self/exe");
  make_folders(root, SandboxView::kFolder);
  view.folder = view.root + SandboxView::kFolder;
  return view;
}

}  // namespace baton
