// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/part_file.h"

#include <cerrno>
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
  descriptor_ = open_file(part_, Open::read | Open::write | Open::create | Open::no_link);
  const std::optional<FileStatus> status = descriptor_ ? status_of(descriptor_) : std::nullopt;
  if (!status) fail(errno);
  if (status->kind != FileKind::regular) fail(EINVAL);
  bytes_ = status->bytes;
}

PartFile::~PartFile() {
  if (descriptor_ && bytes_ == 0) discard();
}

void PartFile::fail(int error) const {
  throw fs::filesystem_error("cannot write", part_, std::error_code(error, std::generic_category()));
}

void PartFile::restart() {
  if (!set_size(descriptor_, 0)) fail(errno);
  bytes_ = 0;
  stream_ = ChecksumStream(kind_, size_);
}

void PartFile::append(std::span<const std::byte> bytes) {
  stream_.add(bytes);
  if (!write_at(descriptor_, bytes, bytes_)) fail(errno);
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

bool PartFile::add_from_disk(ChecksumStream& stream, const std::stop_token& stop) const {
  std::vector<std::byte> block(kBlock);
  for (std::int64_t at = 0; at < bytes_;) {
    if (stop.stop_requested()) return false;
    const std::int64_t count = read_at(descriptor_, block, at);
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
  const std::int64_t got = read_at(descriptor_, std::as_writable_bytes(std::span(bytes)), 0);
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
  if (!flush_to_disk(descriptor_) || !descriptor_.close()) fail(errno);
  fs::rename(part_, target_);
  set_validator("");
}

void PartFile::discard() {
  descriptor_.reset();
  std::error_code ignored;
  fs::remove(part_, ignored);
  set_validator("");
}

}  // namespace baton
