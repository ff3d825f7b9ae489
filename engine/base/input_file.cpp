// SPDX-License-Identifier: Apache-2.0
#include "engine/base/input_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/errors.h"

namespace baton {
namespace {

[[noreturn]] void cannot_read(const std::filesystem::path& path, int code) {
  throw ModelError(fmt::format("{}: {}", path.string(), std::generic_category().message(code)));
}

/// What Git LFS leaves in place of a large file whose contents were not fetched: a short text.
constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
constexpr std::uint64_t kMaxPointer = 1024;  // bytes

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  file_ = open_file(path_, Open::read | Open::sequential);
  if (!file_) cannot_read(path_, errno);
  const std::optional<FileStatus> status = status_of(file_);
  if (!status) cannot_read(path_, errno);
  if (status->kind != FileKind::regular) throw ModelError(fmt::format("{}: not a regular file", path_.string()));
  size_ = static_cast<std::uint64_t>(status->bytes);
  if (size_ < kMaxPointer && text(kMaxPointer).starts_with(kPointer))
    throw ModelError(fmt::format(
        "{}: this is a pointer of Git LFS, the file's contents are not here; fetch them with 'git lfs pull', or "
        "download the model with 'baton pull ORG/NAME'",
        path_.string()));
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  const std::int64_t got = read_at(file_, out, static_cast<std::int64_t>(offset));
  if (got < 0) cannot_read(path_, errno);
  if (const auto done = static_cast<std::size_t>(got); done < out.size())
    throw ModelError(fmt::format("{}: byte {}: the file ends here, expected {} bytes more; truncated while it is read?",
                                 path_.string(), offset + done, out.size() - done));
}

std::string InputFile::text(std::uint64_t max) const {
  if (size_ > max) throw ModelError(fmt::format("{}: {} bytes, expected at most {}", path_.string(), size_, max));
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace baton
