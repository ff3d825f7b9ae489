// SPDX-License-Identifier: Apache-2.0
#include "engine/base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/errors.h"

namespace baton {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  throw ModelError(fmt::format("{}: {}", path.string(), std::generic_category().message(code)));
}

/// What Git LFS leaves in place of a large file whose contents were not fetched: a short text.
constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
constexpr std::uint64_t kMaxPointer = 1024;  // bytes

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a named pipe must fail the check for a regular file, not wait for a writer.
  file_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_) fail(path_, errno);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail(path_, errno);
  if (!S_ISREG(status.st_mode)) throw ModelError(fmt::format("{}: not a regular file", path_.string()));
  size_ = static_cast<std::uint64_t>(status.st_size);
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint: its failure changes nothing
  if (size_ < kMaxPointer && text(kMaxPointer).starts_with(kPointer))
    throw ModelError(fmt::format(
        "{}: this is a pointer of Git LFS, the file's contents are not here; fetch them with 'git lfs pull', or "
        "download the model with 'baton pull ORG/NAME'",
        path_.string()));
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  constexpr std::size_t kMaxRead = std::size_t{1} << 30;  // the system reads less than 2 GiB at once
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(file_.get(), out.data() + done, std::min(kMaxRead, out.size() - done),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, errno);
    if (got == 0)
      throw ModelError(
          fmt::format("{}: byte {}: the file ends here, expected {} bytes more; truncated while it is read?",
                      path_.string(), offset + done, out.size() - done));
    done += static_cast<std::size_t>(got);
  }
}

std::string InputFile::text(std::uint64_t max) const {
  if (size_ > max) throw ModelError(fmt::format("{}: {} bytes, expected at most {}", path_.string(), size_, max));
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace baton
