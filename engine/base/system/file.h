// SPDX-License-Identifier: Apache-2.0
// Files by descriptor. What fails returns an empty descriptor, false, nothing or -1, and leaves the reason in errno. No
// child process inherits a descriptor, and calls that a signal interrupts go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace baton {

/// False when closing fails, so that written data may be lost.
bool close_descriptor(int fd) noexcept;

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Closes the descriptor. Returns false when closing fails, so that written data may be lost.
  bool close() { return close_descriptor(std::exchange(fd_, -1)); }
  void reset() {
    if (fd_ >= 0) close();
  }

 private:
  int fd_ = -1;
};

enum class Open : unsigned {
  read = 1,         // a named pipe does not wait for a writer
  write = 2,        //
  append = 4,       // each write goes to the end
  create = 8,       // a file that is missing is made; all may read it, and write it but for the umask
  only_new = 16,    // with `create`: a file that is there is an error, EEXIST
  no_link = 32,     // a symbolic link is an error, ELOOP
  sequential = 64,  // a hint: it will be read from its beginning to its end
};
constexpr Open operator|(Open a, Open b) {
  return static_cast<Open>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

UniqueFd open_file(const std::filesystem::path& file, Open how);

/// A file for reading and writing that ends with its descriptor, in a folder.
UniqueFd open_temporary(const std::filesystem::path& folder);

/// The same, which name_file can name, with the permissions of a new file. Not on all systems: ENOTSUP.
UniqueFd open_unnamed(const std::filesystem::path& folder);
/// Names a file of open_unnamed. EEXIST: the name is taken.
bool name_file(const UniqueFd& file, const std::filesystem::path& name);

enum class FileKind { regular, folder, other };
struct FileStatus {
  FileKind kind = FileKind::other;
  std::int64_t bytes = 0;
  std::int64_t changed = 0;  // contents or attributes, nanoseconds since 1970; 0: unknown
};
std::optional<FileStatus> status_of(const UniqueFd& file);
/// Whether it is the file that has this name now.
bool has_name(const UniqueFd& file, const std::filesystem::path& name);
/// Gives `to` the permissions that the regular file `from` has; nothing to do if there is none, and if access
/// lists alone say who may read a file.
bool copy_permissions(const std::filesystem::path& from, const UniqueFd& to);
/// Whether every user of the machine may read it, as far as the system says that in a few bits.
bool readable_by_all(const std::filesystem::path& file);

/// The place at which a file is written to replace what is at a path.
struct WriteTarget {
  std::filesystem::path file;  // the path, or what the links at it lead to, which need not exist
  std::string problem;         // why it cannot be replaced; empty: it can
};
/// A device, a pipe, a socket or a folder is never replaced. Everything that writes a file whole asks this.
inline WriteTarget write_target(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int kMaxLinks = 40;  // as Linux follows
  WriteTarget target{path, {}};
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target.file, error)); ++links) {
    const fs::path next = fs::read_symlink(target.file, error);
    if (links == kMaxLinks || error) return {path, "the links at it lead nowhere"};
    target.file = next.is_absolute() ? next : target.file.parent_path() / next;
  }
  const fs::file_status status = fs::status(target.file, error);
  if (!fs::exists(status) || fs::is_regular_file(status)) return target;
  target.problem = fs::is_directory(status) ? "a folder is there" : "a device, a pipe or a socket is there";
  return target;
}

/// At least one byte; 0 at the end of the file.
std::int64_t read_some(const UniqueFd& file, std::span<std::byte> out);
/// As many bytes as there are from `offset` on: fewer than `out` holds only at the end of the file.
std::int64_t read_at(const UniqueFd& file, std::span<std::byte> out, std::int64_t offset);
/// All of them; after a failure some may have been written.
bool write_all(const UniqueFd& file, std::string_view bytes);
bool write_at(const UniqueFd& file, std::span<const std::byte> bytes, std::int64_t offset);
bool set_size(const UniqueFd& file, std::int64_t bytes);
/// Returns once the contents have reached the disk.
bool flush_to_disk(const UniqueFd& file);

enum class FileLockState { locked, busy, unavailable, failed };
/// A lock between processes, which ends with the descriptor. unavailable: the file system has none.
FileLockState try_lock(const UniqueFd& file);

/// A folder that is kept open, so that what is opened in it is of this folder even if it is renamed meanwhile.
class OpenFolder {
 public:
  /// Empty when it cannot be opened. ENOTDIR: it is no folder.
  explicit OpenFolder(std::filesystem::path folder);
  explicit operator bool() const { return static_cast<bool>(descriptor_); }

  /// For reading. `name` may be that of a file or of a file in a sub-folder, and neither may be a symbolic link: ELOOP
  /// or ENOTDIR.
  UniqueFd open(const std::filesystem::path& name) const;

 private:
  std::filesystem::path path_;
  UniqueFd descriptor_;
};

// Where users keep their files, lists of folders in variables, and local time.

/// The user's home folder; empty: the environment names none.
std::filesystem::path home_folder();

/// The folder of the user's caches; empty: the environment names neither it nor a home.
std::filesystem::path cache_folder();

/// What follows "file://" in an address, decoded, as a path: with drive letters, "/C:/x" means "C:/x".
std::filesystem::path path_of_address(std::string_view after_scheme);

/// The folders in the value of a variable such as PATH; empty ones are left out.
inline std::vector<std::string> folders_of_list(std::string_view list) {
  constexpr char kSeparator = std::filesystem::path::preferred_separator == '/' ? ':' : ';';
  std::vector<std::string> folders;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(kSeparator), list.size());
    if (end > 0) folders.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return folders;
}

std::tm local_time(std::time_t time);

}  // namespace baton
