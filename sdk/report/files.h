// SPDX-License-Identifier: Apache-2.0
// The files of a record's folder. The folder may come from anybody: only regular files in it are read, no links,
// nothing that blocks, and no more than a limit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/system/file.h"

namespace baton::cli {

class RecordFiles {
 public:
  /// Throws Failure with kUsage when there is no such folder.
  explicit RecordFiles(std::filesystem::path folder);

  struct Start {
    std::string bytes;  // no more than was asked for
    std::uint64_t size = 0;
  };

  /// The first `limit` bytes of `name`, which may be in a sub-folder; nothing when it is not there. Throws Failure with
  /// kInvalidFile for what is not a regular file.
  std::optional<Start> start_of(const std::string& name, std::size_t limit) const;

  /// The whole file; a larger one than `limit` is a Failure too.
  std::optional<std::string> whole(const std::string& name, std::size_t limit) const;

  /// "runs/1/run.json", for messages.
  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
  OpenFolder opened_;
};

/// Writes a page whole or not at all. Over an earlier page, but over nothing else. Throws Failure.
void write_page(const std::filesystem::path& path, const std::string& page);

/// The first bytes of every page, which tell a page from a file that must not be lost.
inline constexpr const char* kPageStart = "<!doctype html>\n<!-- baton report -->\n";

}  // namespace baton::cli
