// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/atomic_file.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBlock = 1 << 20;  // bytes read at once
constexpr std::size_t kMaxValidator = 512;

fs::path with_suffix(const fs::path& path, const char* suffix) { return path.string() + suffix; }

}  // namespace

PartFile::PartFile(fs::path target)
    : target_(std::move(target)),
      part_(with_suffix(target_, ".incomplete")),
      validator_(with_suffix(target_, ".incomplete.etag")) {
  fs::create_directories(target_.parent_path());
  // O_NONBLOCK: a named pipe must fail the check for a regular file, not wait.
  descriptor_ = UniqueFd(::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  struct stat status {};
  if (!descriptor_ || ::fstat(descriptor_.get(), &status) != 0) fail(errno);
  if (!S_ISREG(status.st_mode)) fail(EINVAL);
  bytes_ = status.st_size;
}

PartFile::~PartFile() {
  if (descriptor_ && bytes_ == 0) discard();
}

void PartFile::fail(int error) const {
  throw fs::filesystem_error("cannot write", part_, std::error_code(error, std::generic_category()));
}

void PartFile::restart() {
  if (::ftruncate(descriptor_.get(), 0) != 0) fail(errno);
  bytes_ = 0;
  stream_ = ChecksumStream(kind_, size_);
}

void PartFile::append(std::span<const std::byte> bytes) {
  stream_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), bytes_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    bytes_ += count;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

bool PartFile::add_from_disk(ChecksumStream& stream, const std::stop_token& stop) const {
  std::vector<std::byte> block(kBlock);
  for (std::int64_t at = 0; at < bytes_;) {
    if (stop.stop_requested()) return false;
    const ssize_t count = ::pread(descriptor_.get(), block.data(), block.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(count == 0 ? EIO : errno);
    stream.add(std::span(block).first(static_cast<std::size_t>(count)));
    at += count;
  }
  return true;
}

bool PartFile::expect(Checksum::Kind kind, std::int64_t size, const std::stop_token& stop) {
  kind_ = kind == Checksum::Kind::git_sha1 && size < 0 ? Checksum::Kind::none : kind;
  size_ = size;
  stream_ = ChecksumStream(kind_, size_);
  return kind_ == Checksum::Kind::none || add_from_disk(stream_, stop);
}

std::string PartFile::hex(Checksum::Kind kind, const std::stop_token& stop) {
  if (kind == kind_ && (kind != Checksum::Kind::git_sha1 || bytes_ == size_)) {
    ChecksumStream done = std::exchange(stream_, ChecksumStream(Checksum::Kind::none, 0));
    return done.hex();
  }
  ChecksumStream stream(kind, bytes_);
  return add_from_disk(stream, stop) ? stream.hex() : std::string();
}

std::string PartFile::head(std::size_t count) const {
  std::string bytes(count, '\0');
  const ssize_t got = ::pread(descriptor_.get(), bytes.data(), count, 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

std::string PartFile::validator() const {
  std::ifstream file(validator_, std::ios::binary);
  std::string text(kMaxValidator, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "";  // it becomes a header
  return text;
}

void PartFile::set_validator(const std::string& text) {
  if (!text.empty() && text.size() <= kMaxValidator) return write_whole(validator_, text);
  std::error_code ignored;
  fs::remove(validator_, ignored);
}

void PartFile::commit() {
  if (::fsync(descriptor_.get()) != 0 || !descriptor_.close()) fail(errno);
  if (std::rename(part_.c_str(), target_.c_str()) != 0) fail(errno);
  set_validator("");
}

void PartFile::discard() {
  descriptor_.reset();
  std::error_code ignored;
  fs::remove(part_, ignored);
  set_validator("");
}

}  // namespace baton
