// SPDX-License-Identifier: Apache-2.0
#include "engine/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "engine/base/errors.h"
#include "engine/base/unique_fd.h"

namespace baton {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  throw ModelError(fmt::format("{}: {}", path.string(), std::generic_category().message(code)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must fail the check for a regular file, not wait for a writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, errno);
  if (!S_ISREG(status.st_mode)) throw ModelError(fmt::format("{}: not a regular file", path.string()));
  if (status.st_size == 0) return;  // an empty range cannot be mapped; the reader reports what is missing

  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail(path, errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  ::madvise(data, size, MADV_SEQUENTIAL);  // a hint: its failure changes nothing
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace baton
