// SPDX-License-Identifier: Apache-2.0
// The files that a confined process sees where it has a mount namespace of its own: read-only mounts of what it may
// read, in a tree that has nothing else, and an empty file system of limited size.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace baton {

struct SandboxView {
  struct Mount {
    std::string source;
    std::string target;
    bool device = false;
  };

  std::string root;  // a folder of the host with the empty files and folders that are mounted on
  std::vector<Mount> mounts;
  std::string folder;          // where the limited file system is mounted
  std::string folder_options;  // its limits and its owner

  /// Where the process sees that file system.
  static constexpr const char* kFolder = "/sandbox";
};

/// Makes the tree in `root`, an empty folder. Each path of `readable` that exists is seen under its own name.
/// `program` is what the process finds as /proc/self/exe, by which the dynamic loader finds libraries next to it.
/// Throws std::filesystem::filesystem_error.
SandboxView make_sandbox_view(const std::filesystem::path& root, std::vector<std::filesystem::path> readable,
                              const std::filesystem::path& program);

}  // namespace baton
