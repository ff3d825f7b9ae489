// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/posix/control_groups.h"

#include <fstream>

namespace baton {

namespace fs = std::filesystem;

/// A container may see the path that its host knows, and its own group at the mount: the mount is visited, too.
void visit_groups(const fs::path& root, const std::string& controller,
                  const std::function<void(const fs::path& folder, GroupVersion)>& visit) {
  const fs::path groups = root / "sys/fs/cgroup";
  const auto visit_around = [&](const fs::path& mount, const fs::path& path, GroupVersion version) {
    for (fs::path at = path.relative_path(); !at.empty(); at = at.parent_path()) visit(mount / at, version);
    visit(mount, version);
  };
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {  // "0::/path", "9:cpu,cpuacct:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = fs::path(line.substr(second + 1)).lexically_normal();
    if (controllers == ",,") {
      visit_around(groups, path, GroupVersion::two);
      visit_around(groups / "unified", path, GroupVersion::two);
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      visit_around(groups / controller, path, GroupVersion::one);
    }
  }
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;
}

}  // namespace baton
