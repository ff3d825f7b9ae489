// SPDX-License-Identifier: Apache-2.0
// Descriptors are those of the C library, over handles that let others read, write, rename and remove the file, as open
// files do elsewhere.

#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cwchar>
#include <string>
#include <utility>
// after it

#include "engine/base/system/file.h"

namespace baton {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // a call takes a number of 32 bits
constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

/// The number of errno that comes closest to an error of the system.
int number_of(DWORD error) {
  constexpr std::array<std::pair<DWORD, int>, 19> kNumbers = {{{ERROR_FILE_NOT_FOUND, ENOENT},
                                                               {ERROR_PATH_NOT_FOUND, ENOENT},
                                                               {ERROR_INVALID_NAME, ENOENT},
                                                               {ERROR_ACCESS_DENIED, EACCES},
                                                               {ERROR_SHARING_VIOLATION, EACCES},
                                                               {ERROR_LOCK_VIOLATION, EACCES},
                                                               {ERROR_FILE_EXISTS, EEXIST},
                                                               {ERROR_ALREADY_EXISTS, EEXIST},
                                                               {ERROR_DIRECTORY, ENOTDIR},
                                                               {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
                                                               {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
                                                               {ERROR_OUTOFMEMORY, ENOMEM},
                                                               {ERROR_DISK_FULL, ENOSPC},
                                                               {ERROR_HANDLE_DISK_FULL, ENOSPC},
                                                               {ERROR_WRITE_PROTECT, EROFS},
                                                               {ERROR_BROKEN_PIPE, EPIPE},
                                                               {ERROR_NO_DATA, EPIPE},
                                                               {ERROR_INVALID_PARAMETER, EINVAL},
                                                               {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG}}};
  const auto* found =
      std::find_if(kNumbers.begin(), kNumbers.end(), [error](const auto& one) { return one.first == error; });
  return found == kNumbers.end() ? EIO : found->second;
}

/// False, with the last error in errno.
bool failed() {
  errno = number_of(GetLastError());
  return false;
}

HANDLE handle_of(const UniqueFd& file) { return reinterpret_cast<HANDLE>(_get_osfhandle(file.get())); }

/// Takes the handle over.
UniqueFd descriptor_of(HANDLE handle, int flags) {
  if (handle == INVALID_HANDLE_VALUE) {
    failed();
    return {};
  }
  UniqueFd file(_open_osfhandle(reinterpret_cast<std::intptr_t>(handle), flags | _O_BINARY | _O_NOINHERIT));
  if (!file) CloseHandle(handle);
  return file;
}

OVERLAPPED place(std::int64_t offset) {
  OVERLAPPED at{};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(static_cast<std::uint64_t>(offset) >> 32);
  return at;
}

bool is_link(const UniqueFd& file) {
  BY_HANDLE_FILE_INFORMATION information{};
  return GetFileInformationByHandle(handle_of(file), &information) != 0 &&
         (information.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0;
}

}  // namespace

bool close_descriptor(int fd) noexcept { return _close(fd) == 0; }

UniqueFd open_file(const std::filesystem::path& file, Open how) {
  const auto has = [how](Open flag) { return (static_cast<unsigned>(how) & static_cast<unsigned>(flag)) != 0; };
  const bool writes = has(Open::write) || has(Open::append);
  const DWORD access = (has(Open::read) ? GENERIC_READ : 0u) | (writes ? GENERIC_WRITE : 0u);
  const DWORD making = has(Open::only_new) ? CREATE_NEW : has(Open::create) ? OPEN_ALWAYS : OPEN_EXISTING;
  const DWORD flags = FILE_ATTRIBUTE_NORMAL | FILE_FLAG_BACKUP_SEMANTICS |  // a folder opens, too
                      (has(Open::no_link) ? FILE_FLAG_OPEN_REPARSE_POINT : 0u) |
                      (has(Open::sequential) ? FILE_FLAG_SEQUENTIAL_SCAN : 0u);
  UniqueFd opened = descriptor_of(CreateFileW(file.c_str(), access, kShared, nullptr, making, flags, nullptr),
                                  (has(Open::append) ? _O_APPEND : 0) | (writes ? 0 : _O_RDONLY));
  if (opened && has(Open::no_link) && is_link(opened)) {
    errno = ELOOP;
    return {};
  }
  return opened;
}

UniqueFd open_temporary(const std::filesystem::path& folder) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const auto name = folder / ("baton-" + std::to_string(GetCurrentProcessId()) + "-" + std::to_string(i));
    UniqueFd file = descriptor_of(CreateFileW(name.c_str(), GENERIC_READ | GENERIC_WRITE, kShared, nullptr, CREATE_NEW,
                                              FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr),
                                  0);
    if (file || errno != EEXIST) return file;
  }
  return {};
}

UniqueFd open_unnamed(const std::filesystem::path& /*folder*/) {
  errno = ENOTSUP;
  return {};
}

bool name_file(const UniqueFd& /*file*/, const std::filesystem::path& /*name*/) {
  errno = ENOTSUP;
  return false;
}

std::optional<FileStatus> status_of(const UniqueFd& file) {
  if (GetFileType(handle_of(file)) != FILE_TYPE_DISK) return FileStatus{};
  BY_HANDLE_FILE_INFORMATION information{};
  if (GetFileInformationByHandle(handle_of(file), &information) == 0) return failed(), std::nullopt;
  const bool folder = (information.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
  const auto bytes = std::int64_t{information.nFileSizeHigh} << 32 | std::int64_t{information.nFileSizeLow};
  constexpr std::int64_t kUntil1970 = 116'444'736'000'000'000;  // in units of 100 ns since 1601
  FILE_BASIC_INFO basic{};
  std::int64_t changed = 0;
  if (GetFileInformationByHandleEx(handle_of(file), FileBasicInfo, &basic, sizeof basic) != 0)
    changed = (basic.ChangeTime.QuadPart - kUntil1970) * 100;
  return FileStatus{folder ? FileKind::folder : FileKind::regular, bytes, changed};
}

bool has_name(const UniqueFd& file, const std::filesystem::path& name) {
  const UniqueFd named = descriptor_of(
      CreateFileW(name.c_str(), 0, kShared, nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr), _O_RDONLY);
  BY_HANDLE_FILE_INFORMATION a{}, b{};
  return named && GetFileInformationByHandle(handle_of(file), &a) != 0 &&
         GetFileInformationByHandle(handle_of(named), &b) != 0 && a.dwVolumeSerialNumber == b.dwVolumeSerialNumber &&
         a.nFileIndexHigh == b.nFileIndexHigh && a.nFileIndexLow == b.nFileIndexLow;
}

/// A file inherits the access list of its folder.
bool copy_permissions(const std::filesystem::path& /*from*/, const UniqueFd& /*to*/) { return true; }

bool readable_by_all(const std::filesystem::path& /*file*/) { return false; }  // access lists say it, in many entries

std::int64_t read_some(const UniqueFd& file, std::span<std::byte> out) {
  return _read(file.get(), out.data(), static_cast<unsigned>(std::min(kMaxBytes, out.size())));
}

std::int64_t read_at(const UniqueFd& file, std::span<std::byte> out, std::int64_t offset) {
  std::size_t done = 0;
  while (done < out.size()) {
    OVERLAPPED at = place(offset + static_cast<std::int64_t>(done));
    DWORD got = 0;
    const auto wanted = static_cast<DWORD>(std::min(kMaxBytes, out.size() - done));
    if (ReadFile(handle_of(file), out.data() + done, wanted, &got, &at) == 0) {
      if (GetLastError() == ERROR_HANDLE_EOF) break;
      failed();
      return -1;
    }
    if (got == 0) break;
    done += got;
  }
  return static_cast<std::int64_t>(done);
}

bool write_all(const UniqueFd& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const int put = _write(file.get(), bytes.data(), static_cast<unsigned>(std::min(kMaxBytes, bytes.size())));
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

bool write_at(const UniqueFd& file, std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    OVERLAPPED at = place(offset);
    DWORD put = 0;
    const auto wanted = static_cast<DWORD>(std::min(kMaxBytes, bytes.size()));
    if (WriteFile(handle_of(file), bytes.data(), wanted, &put, &at) == 0) return failed();
    offset += put;
    bytes = bytes.subspan(put);
  }
  return true;
}

bool set_size(const UniqueFd& file, std::int64_t bytes) {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = bytes;
  return SetFileInformationByHandle(handle_of(file), FileEndOfFileInfo, &end, sizeof(end)) != 0 || failed();
}

bool flush_to_disk(const UniqueFd& file) { return FlushFileBuffers(handle_of(file)) != 0 || failed(); }

FileLockState try_lock(const UniqueFd& file) {
  OVERLAPPED at = place(std::int64_t{1} << 62);  // a lock keeps others from these bytes, so it is far behind the file's
  if (LockFileEx(handle_of(file), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at) != 0)
    return FileLockState::locked;
  const DWORD error = GetLastError();
  if (error == ERROR_LOCK_VIOLATION || error == ERROR_IO_PENDING) return FileLockState::busy;
  if (error == ERROR_NOT_SUPPORTED || error == ERROR_INVALID_FUNCTION) return FileLockState::unavailable;
  failed();
  return FileLockState::failed;
}

OpenFolder::OpenFolder(std::filesystem::path folder) : path_(std::move(folder)) {
  UniqueFd opened = open_file(path_, Open::read);
  if (!opened) return;
  const std::optional<FileStatus> status = status_of(opened);
  if (status && status->kind == FileKind::folder)
    descriptor_ = std::move(opened);
  else
    errno = ENOTDIR;
}

/// While the folder is open it may be renamed, and then nothing is found in it.
UniqueFd OpenFolder::open(const std::filesystem::path& name) const {
  if (name.has_parent_path()) {
    const UniqueFd sub = open_file(path_ / name.parent_path(), Open::read | Open::no_link);
    if (!sub) return {};
  }
  return open_file(path_ / name, Open::read | Open::no_link);
}

}  // namespace baton

// libstdc++ makes paths of strings with mbrtowc, and strings of paths as UTF-8. In the C library that MinGW-w64 links,
// mbrtowc knows no UTF-8, so that a name with other letters than ASCII would be another after a round trip. The linker
// takes this function in its place (--wrap in CMakeLists.txt).
extern "C" std::size_t __wrap_mbrtowc(wchar_t* out, const char* text, std::size_t bytes, std::mbstate_t* state);

/// The next unit of UTF-16. A character of two takes three of its four bytes with the first, which leaves the second in
/// the state, and one with the second.
extern "C" std::size_t __wrap_mbrtowc(wchar_t* out, const char* text, std::size_t bytes, std::mbstate_t* state) {
  constexpr auto kInvalid = static_cast<std::size_t>(-1), kIncomplete = static_cast<std::size_t>(-2);
  static std::mbstate_t own = 0;  // as the standard has it for callers without one
  if (state == nullptr) state = &own;
  if (text == nullptr) return *state = 0, 0;
  if (bytes == 0) return kIncomplete;
  if (*state != 0) {
    if (out != nullptr) *out = static_cast<wchar_t>(*state);
    *state = 0;
    return 1;
  }
  const auto lead = static_cast<unsigned char>(*text);
  const std::size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes < length) return kIncomplete;
  wchar_t units[2] = {};
  const int found = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, static_cast<int>(length), units, 2);
  if (found == 0) {
    errno = EILSEQ;
    return kInvalid;
  }
  if (out != nullptr) *out = units[0];
  if (found == 2) {
    *state = units[1];
    return length - 1;
  }
  return units[0] == 0 ? 0 : length;
}

namespace baton {

namespace fs = std::filesystem;
namespace {

fs::path folder_in(const wchar_t* variable) {
  const wchar_t* value = _wgetenv(variable);
  return value == nullptr ? fs::path() : fs::path(value);
}

}  // namespace

fs::path home_folder() { return folder_in(L"USERPROFILE"); }
fs::path cache_folder() { return folder_in(L"LOCALAPPDATA"); }

fs::path path_of_address(std::string_view after_scheme) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const bool has_drive =
      after_scheme.size() > 3 && after_scheme[0] == '/' && is_letter(after_scheme[1]) && after_scheme[2] == ':';
  return after_scheme.substr(has_drive ? 1 : 0);
}

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_s(&local, &time);
  return local;
}

}  // namespace baton
