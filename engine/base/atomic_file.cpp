// SPDX-License-Identifier: Apache-2.0
#include "engine/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace baton {
namespace {

constexpr int kTries = 100;  // at a temporary name that nobody has

std::string path_of_descriptor(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)) {
  const std::filesystem::path folder = file_.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  descriptor_ = UniqueFd(::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  // Only /proc can give it a name later.
  if (!descriptor_ || ::access(path_of_descriptor(descriptor_.get()).c_str(), F_OK) != 0) {
    std::string name = (folder / fmt::format(".{}.XXXXXX", file_.filename().string())).string();
    descriptor_ = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    if (!descriptor_) fail(errno);
    unfinished_ = std::move(name);
  }
  ::fchmod(descriptor_.get(), 0644);  // a temporary file is created readable by its owner only
}

AtomicFile::~AtomicFile() {
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

void AtomicFile::give_temporary_name() {
  const std::string descriptor = path_of_descriptor(descriptor_.get());
  for (int i = 0; i < kTries; ++i) {  // linkat replaces nothing, rename does
    std::string name =
        (file_.parent_path() / fmt::format(".{}.{}-{}", file_.filename().string(), ::getpid(), i)).string();
    if (::linkat(AT_FDCWD, descriptor.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      unfinished_ = std::move(name);
      return;
    }
    if (errno != EEXIST) break;
  }
  fail(errno);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_at(size_, bytes);
  size_ += bytes.size();
}

void AtomicFile::write_at_start(std::span<const std::byte> bytes) { write_at(0, bytes); }

void AtomicFile::write_at(std::size_t position, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    position += static_cast<std::size_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  if (unfinished_.empty()) give_temporary_name();
  if (!descriptor_.close() || std::rename(unfinished_.c_str(), file_.c_str()) != 0) fail(errno);
  unfinished_.clear();
}

void AtomicFile::fail(int error) const {
  throw std::filesystem::filesystem_error("cannot write", file_, std::error_code(error, std::generic_category()));
}

void write_whole(const std::filesystem::path& file, std::string_view text) {
  AtomicFile out(file);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

}  // namespace baton
