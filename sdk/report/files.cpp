// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/whole_file.h"

namespace baton::cli {
namespace fs = std::filesystem;
namespace {

/// Up to `limit` bytes from where the file stands; false when reading fails.
bool read_some(int descriptor, std::size_t limit, std::string& bytes) {
  while (bytes.size() < limit) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min(limit, before + (std::size_t{1} << 20)));
    const ssize_t got = ::read(descriptor, bytes.data() + before, bytes.size() - before);
    bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) return false;
    if (got == 0) return true;
  }
  return true;
}

/// Throws unless nothing is there, or a page.
void require_page_or_nothing(const fs::path& path) {
  // A FIFO would block without O_NONBLOCK; a link could lead anywhere.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file < 0 && errno == ENOENT) return;
  const std::string_view start = kPageStart;
  struct stat status {};
  std::string bytes;
  const bool page = file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                    read_some(file, start.size(), bytes) && bytes == start;
  if (!page) {
    throw Failure(
        kUsage, fmt::format("{}: the file exists and is not a report; give another name with --output", path.string()));
  }
}

}  // namespace

RecordFiles::RecordFiles(fs::path folder)
    : folder_(std::move(folder)), descriptor_(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ >= 0) return;
  const std::string why = errno == ENOTDIR ? "it is not a folder" : std::strerror(errno);
  throw Failure(kUsage,
                fmt::format("{}: {}; expected a folder that 'baton run --record' wrote", folder_.string(), why));
}

std::optional<RecordFiles::Start> RecordFiles::start_of(const std::string& name, std::size_t limit) const {
  const auto fail = [&](const std::string& found) {
    return Failure(kInvalidFile, fmt::format("{}: expected a regular file, found {}", path_of(name), found));
  };
  const auto open_in = [&](int folder, const std::string& part, int flags) {
    const int found = ::openat(folder, part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags);
    if (found >= 0 || errno == ENOENT) return found;
    throw fail(errno == ELOOP || errno == ENOTDIR ? "a symbolic link" : std::strerror(errno));
  };
  const std::size_t slash = name.find('/');
  const FileDescriptor sub(slash == std::string::npos ? ::dup(descriptor_)
                                                      : open_in(descriptor_, name.substr(0, slash), O_DIRECTORY));
  if (sub < 0) return std::nullopt;
  const FileDescriptor file(open_in(sub, slash == std::string::npos ? name : name.substr(slash + 1), 0));
  if (file < 0) return std::nullopt;
  struct stat status {};
  if (::fstat(file, &status) != 0) throw fail(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw fail(S_ISDIR(status.st_mode) ? "a folder" : "a pipe or a device");
  Start start;
  start.size = static_cast<std::uint64_t>(status.st_size);
  if (!read_some(file, limit, start.bytes)) throw fail(std::strerror(errno));
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
