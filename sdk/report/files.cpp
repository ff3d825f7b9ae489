// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/whole_file.h"

namespace baton::cli {
namespace fs = std::filesystem;
namespace {

/// Up to `limit` bytes from where the file stands; false when reading fails.
bool read_start(const UniqueFd& file, std::size_t limit, std::string& bytes) {
  while (bytes.size() < limit) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min(limit, before + (std::size_t{1} << 20)));
    const std::int64_t got = read_some(file, std::as_writable_bytes(std::span(bytes).subspan(before)));
    bytes.resize(before + static_cast<std::size_t>(std::max<std::int64_t>(got, 0)));
    if (got <= 0) return got == 0;
  }
  return true;
}

/// Throws unless nothing is there, or a page.
void require_page_or_nothing(const fs::path& path) {
  const UniqueFd file = open_file(path, Open::read | Open::no_link);  // a link could lead anywhere
  if (!file && errno == ENOENT) return;
  const std::string_view start = kPageStart;
  const std::optional<FileStatus> status = file ? status_of(file) : std::nullopt;
  std::string bytes;
  const bool page =
      status && status->kind == FileKind::regular && read_start(file, start.size(), bytes) && bytes == start;
  if (!page) {
    throw Failure(
        kUsage, fmt::format("{}: the file exists and is not a report; give another name with --output", path.string()));
  }
}

}  // namespace

RecordFiles::RecordFiles(fs::path folder) : folder_(std::move(folder)), opened_(folder_) {
  if (opened_) return;
  const std::string why = errno == ENOTDIR ? "it is not a folder" : std::strerror(errno);
  throw Failure(kUsage,
                fmt::format("{}: {}; expected a folder that 'baton run --record' wrote", folder_.string(), why));
}

std::optional<RecordFiles::Start> RecordFiles::start_of(const std::string& name, std::size_t limit) const {
  const auto fail = [&](const std::string& found) {
    return Failure(kInvalidFile, fmt::format("{}: expected a regular file, found {}", path_of(name), found));
  };
  const UniqueFd file = opened_.open(name);
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) throw fail(errno == ELOOP || errno == ENOTDIR ? "a symbolic link" : std::strerror(errno));
  const std::optional<FileStatus> status = status_of(file);
  if (!status) throw fail(std::strerror(errno));
  if (status->kind != FileKind::regular)
    throw fail(status->kind == FileKind::folder ? "a folder" : "a pipe or a device");
  Start start;
  start.size = static_cast<std::uint64_t>(status->bytes);
  if (!read_start(file, limit, start.bytes)) throw fail(std::strerror(errno));
  return start;
}

std::optional<std::string> RecordFiles::whole(const std::string& name, std::size_t limit) const {
  auto start = start_of(name, limit + 1);
  if (!start) return std::nullopt;
  if (start->bytes.size() > limit) {
    throw Failure(kInvalidFile, fmt::format("{}: expected at most {} MiB, found {:.0f} MiB", path_of(name), limit >> 20,
                                            static_cast<double>(start->size) / (1 << 20)));
  }
  return std::move(start->bytes);
}

void write_page(const fs::path& path, const std::string& page) {
  require_page_or_nothing(path);
  write_whole_file(path, page);
}

}  // namespace baton::cli
