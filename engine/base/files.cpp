// SPDX-License-Identifier: Apache-2.0
#include "engine/base/files.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/system/file.h"
#include "engine/base/system/process.h"

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
  changed_ = status->changed;
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

namespace {

std::error_code last_error() { return {errno, std::generic_category()}; }

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path file, Links links) {
  std::error_code none;
  const bool replaced = links == Links::replace && std::filesystem::is_symlink(file, none);
  WriteTarget target = replaced ? WriteTarget{.file = file} : write_target(file);
  if (!target.problem.empty())
    throw std::filesystem::filesystem_error("cannot write: " + target.problem, file,
                                            std::make_error_code(std::errc::operation_not_permitted));
  file_ = std::move(target.file);
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

void write_whole(const std::filesystem::path& file, std::string_view text, Links links) {
  AtomicFile out(file, links);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

namespace {

constexpr std::chrono::milliseconds kBetweenTries{100};

[[noreturn]] void cannot_lock(const std::filesystem::path& file, int error) {
  throw std::filesystem::filesystem_error("cannot lock", file, std::error_code(error, std::generic_category()));
}

}  // namespace

FileLock::FileLock(std::filesystem::path file, const std::stop_token& stop, const std::function<void()>& on_wait,
                   bool removes)
    : file_(std::move(file)), removes_(removes) {
  std::filesystem::create_directories(file_.parent_path());
  bool waited = false;
  while (!stop.stop_requested()) {
    UniqueFd descriptor = open_file(file_, Open::read | Open::write | Open::create);
    if (!descriptor) cannot_lock(file_, errno);
    const FileLockState state = try_lock(descriptor);
    if (state == FileLockState::failed) cannot_lock(file_, errno);
    if (state == FileLockState::locked && !has_name(descriptor, file_))
      continue;  // who held it before removed the file
    if (state != FileLockState::busy) {
      descriptor_ = std::move(descriptor);
      return;
    }
    if (!waited && on_wait) on_wait();
    waited = true;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

/// Removed while it is locked: whoever locks it later finds that it has its name no more.
FileLock::~FileLock() {
  std::error_code ignored;
  if (removes_ && descriptor_) std::filesystem::remove(file_, ignored);
}

std::filesystem::path user_cache() {
  const std::filesystem::path cache = cache_folder();
  return cache.empty() ? cache : cache / "baton";
}

}  // namespace baton
