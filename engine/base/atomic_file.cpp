// SPDX-License-Identifier: Apache-2.0
#include "engine/base/atomic_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "engine/base/system/process.h"

namespace baton {
namespace {

std::error_code last_error() { return {errno, std::generic_category()}; }

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)) {
  const std::filesystem::path folder = file_.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  descriptor_ = open_unnamed(folder.empty() ? "." : folder);
  if (!descriptor_) {
    take_temporary_name([this](const std::filesystem::path& name) {
      descriptor_ = open_file(name, Open::read | Open::write | Open::create | Open::only_new);
      return static_cast<bool>(descriptor_);
    });
  }
  if (copy_permissions(file_, descriptor_)) return;  // now: what was private is so while it is written
  const std::error_code error = last_error();
  remove_unfinished();
  fail(error);
}

AtomicFile::~AtomicFile() { remove_unfinished(); }

void AtomicFile::remove_unfinished() const {
  std::error_code ignored;
  if (!unfinished_.empty()) std::filesystem::remove(unfinished_, ignored);
}

/// Calls `make` with one name after another until it is not one that somebody has.
template <typename Make>
void AtomicFile::take_temporary_name(const Make& make) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::filesystem::path name =
        file_.parent_path() / fmt::format(".{}.{}-{}", file_.filename().string(), process_number(), i);
    if (make(name)) {
      unfinished_ = std::move(name);
      return;
    }
    if (errno != EEXIST) break;
  }
  fail(last_error());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_from(size_, bytes);
  size_ += static_cast<std::int64_t>(bytes.size());
}

void AtomicFile::write_at_start(std::span<const std::byte> bytes) { write_from(0, bytes); }

void AtomicFile::write_from(std::int64_t position, std::span<const std::byte> bytes) {
  if (!write_at(descriptor_, bytes, position)) fail(last_error());
}

void AtomicFile::commit() {
  // Naming a file replaces nothing, renaming it does.
  if (unfinished_.empty())
    take_temporary_name([this](const std::filesystem::path& name) { return name_file(descriptor_, name); });
  if (!descriptor_.close()) fail(last_error());
  std::error_code error;
  std::filesystem::rename(unfinished_, file_, error);
  if (error) fail(error);
  unfinished_.clear();
}

void AtomicFile::fail(std::error_code error) const {
  throw std::filesystem::filesystem_error("cannot write", file_, error);
}

void write_whole(const std::filesystem::path& file, std::string_view text) {
  AtomicFile out(file);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

}  // namespace baton
