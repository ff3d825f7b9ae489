// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "engine/base/system/file.h"

namespace baton {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // the system reads and writes less than 2 GiB at once

/// Calls until no signal interrupts it.
template <typename Call>
auto repeated(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

constexpr mode_t kPermissions = 0777;
constexpr mode_t kNewFile = 0666;  // before the umask

#ifdef O_TMPFILE
/// What the umask leaves of kNewFile. Asking umask() would change it for all threads, so it is read as text.
mode_t new_file_permissions() {
  std::ifstream status("/proc/self/status");
  const std::string key = "Umask:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key))
      return kNewFile & ~static_cast<mode_t>(std::strtoul(line.c_str() + key.size(), nullptr, 8));
  }
  return 0644;  // before Linux 4.7
}
#endif

std::string path_of_descriptor(const UniqueFd& file) { return "/proc/self/fd/" + std::to_string(file.get()); }

}  // namespace

bool close_descriptor(int fd) noexcept { return ::close(fd) == 0; }

UniqueFd open_file(const std::filesystem::path& file, Open how) {
  const auto has = [how](Open flag) { return (static_cast<unsigned>(how) & static_cast<unsigned>(flag)) != 0; };
  const bool writes = has(Open::write) || has(Open::append);
  int flags = O_CLOEXEC;
  flags |= !has(Open::read) ? O_WRONLY : writes ? O_RDWR : O_RDONLY;
  if (has(Open::read)) flags |= O_NONBLOCK;
  if (has(Open::append)) flags |= O_APPEND;
  if (has(Open::create)) flags |= O_CREAT;
  if (has(Open::only_new)) flags |= O_EXCL;
  if (has(Open::no_link)) flags |= O_NOFOLLOW;
  UniqueFd opened(repeated([&] { return ::open(file.c_str(), flags, kNewFile); }));
#ifdef POSIX_FADV_SEQUENTIAL
  if (opened && has(Open::sequential)) ::posix_fadvise(opened.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
  return opened;
}

UniqueFd open_temporary(const std::filesystem::path& folder) {
  std::string name = (folder / "baton-XXXXXX").string();
  UniqueFd file(::mkstemp(name.data()));
  if (!file) return file;
  ::unlink(name.c_str());
  ::fcntl(file.get(), F_SETFD, FD_CLOEXEC);
  return file;
}

UniqueFd open_unnamed([[maybe_unused]] const std::filesystem::path& folder) {
#ifdef O_TMPFILE
  // Before Linux 6.0 some file systems do not apply the umask to a file without a name.
  UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return file;
  if (::access(path_of_descriptor(file).c_str(), F_OK) == 0) {  // only /proc can give it a name later
    ::fchmod(file.get(), new_file_permissions());
    return file;
  }
#endif
  errno = ENOTSUP;
  return {};
}

bool name_file(const UniqueFd& file, const std::filesystem::path& name) {
  return ::linkat(AT_FDCWD, path_of_descriptor(file).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

std::optional<FileStatus> status_of(const UniqueFd& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return std::nullopt;
  const FileKind kind = S_ISREG(status.st_mode)   ? FileKind::regular
                        : S_ISDIR(status.st_mode) ? FileKind::folder
                                                  : FileKind::other;
#ifdef __APPLE__
  const timespec& changed = status.st_ctimespec;
#else
  const timespec& changed = status.st_ctim;
#endif
  return FileStatus{kind, static_cast<std::int64_t>(status.st_size),
                    std::int64_t{changed.tv_sec} * 1'000'000'000 + changed.tv_nsec};
}

bool has_name(const UniqueFd& file, const std::filesystem::path& name) {
  struct stat opened {
  }, named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

bool copy_permissions(const std::filesystem::path& from, const UniqueFd& to) {
  struct stat old {
  }, made{};
  if (::stat(from.c_str(), &old) != 0 || !S_ISREG(old.st_mode)) return true;
  const mode_t wanted = old.st_mode & kPermissions;
  if (::fstat(to.get(), &made) == 0 && (made.st_mode & kPermissions) == wanted) return true;
  return ::fchmod(to.get(), wanted) == 0;
}

bool readable_by_all(const std::filesystem::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0;
}

std::int64_t read_some(const UniqueFd& file, std::span<std::byte> out) {
  return repeated([&] { return ::read(file.get(), out.data(), std::min(kMaxBytes, out.size())); });
}

std::int64_t read_at(const UniqueFd& file, std::span<std::byte> out, std::int64_t offset) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto at = static_cast<off_t>(offset + static_cast<std::int64_t>(done));
    const ssize_t got =
        repeated([&] { return ::pread(file.get(), out.data() + done, std::min(kMaxBytes, out.size() - done), at); });
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return static_cast<std::int64_t>(done);
}

bool write_all(const UniqueFd& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = repeated([&] { return ::write(file.get(), bytes.data(), std::min(kMaxBytes, bytes.size())); });
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

bool write_at(const UniqueFd& file, std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = repeated([&] {
      return ::pwrite(file.get(), bytes.data(), std::min(kMaxBytes, bytes.size()), static_cast<off_t>(offset));
    });
    if (put < 0) return false;
    offset += put;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

bool set_size(const UniqueFd& file, std::int64_t bytes) {
  return ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0;
}

bool flush_to_disk(const UniqueFd& file) {
#ifdef __linux__
  return ::fdatasync(file.get()) == 0;
#else
  return ::fsync(file.get()) == 0;
#endif
}

FileLockState try_lock(const UniqueFd& file) {
  if (repeated([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) == 0) return FileLockState::locked;
  if (errno == EWOULDBLOCK) return FileLockState::busy;
  const bool none = errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK;
  return none ? FileLockState::unavailable : FileLockState::failed;
}

OpenFolder::OpenFolder(std::filesystem::path folder)
    : path_(std::move(folder)), descriptor_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

UniqueFd OpenFolder::open(const std::filesystem::path& name) const {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  if (!name.has_parent_path()) return UniqueFd(::openat(descriptor_.get(), name.c_str(), kFlags));
  const UniqueFd sub(::openat(descriptor_.get(), name.parent_path().c_str(), kFlags | O_DIRECTORY));
  return sub ? UniqueFd(::openat(sub.get(), name.filename().c_str(), kFlags)) : UniqueFd();
}

namespace fs = std::filesystem;

fs::path home_folder() {
  const char* home = std::getenv("HOME");
  return home == nullptr ? fs::path() : fs::path(home);
}

/// By the XDG base directory specification, which ignores relative paths.
fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return cache;
  const fs::path home = home_folder();
  return home.is_absolute() ? home / ".cache" : fs::path();
}

fs::path path_of_address(std::string_view after_scheme) { return after_scheme; }

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

}  // namespace baton
