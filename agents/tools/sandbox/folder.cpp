// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/sandbox/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/base/errors.h"
#include "engine/base/system/file.h"

namespace baton {
namespace {

std::mutex& setting() {
  static std::mutex one;  // the setting is one of the whole process
  return one;
}

}  // namespace

ClosedMemory::ClosedMemory() : lock_(setting()), before_(prctl(PR_GET_DUMPABLE)) {}

ClosedMemory::~ClosedMemory() {
  if (before_ == 1) prctl(PR_SET_DUMPABLE, 1);
}

namespace {

/// Reads a file of /proc, none of which is long. Returns an error number.
int read_counters(const char* path, std::string& text) {
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return errno;
  std::array<char, 4096> buffer;
  ssize_t bytes = -1;
  do {
    bytes = ::read(file.get(), buffer.data(), buffer.size());
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return errno;
  text.assign(buffer.data(), static_cast<std::size_t>(bytes));
  return 0;
}

/// Reads it with another user's rights to files, which the kernel compares with the user of the process that is counted
/// unless this process may debug others. A thread of its own has these rights: they are the thread's, and changing them
/// changes what else the kernel keeps for it.
int read_counters_as(uid_t user, gid_t group, const char* path, std::string& text) {
  const ClosedMemory closed;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of the host runs in this thread
  int error = 0;
  std::optional<std::thread> reader;
  try {
    reader.emplace([&] {
      setfsgid(group);
      setfsuid(user);
      error = read_counters(path, text);
    });
  } catch (const std::system_error& problem) {
    error = problem.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (reader) reader->join();
  return error;
}

[[noreturn]] void usage_failed(const char* path, int error) {
  throw std::system_error(error, std::generic_category(),
                          fmt::format("sandbox: cannot count what the process uses: {}", path));
}

/// Returns the number behind a key, such as "wchar: ". Throws std::system_error.
std::uint64_t counter(std::string_view text, std::string_view key, const char* path) {
  const std::size_t at = text.find(key);
  std::uint64_t value = 0;
  if (at == std::string_view::npos ||
      std::from_chars(text.data() + at + key.size(), text.data() + text.size(), value).ec != std::errc()) {
    usage_failed(path, ENODATA);
  }
  return value;
}

constexpr const char* kDirtied = "\nwrite_bytes: ";

}  // namespace

std::string SandboxUsage::read(const char* counters) const {
  const std::string path = fmt::format("/proc/{}/{}", process_, counters);
  std::string text;
  int error = read_counters(path.c_str(), text);
  const bool denied = error == EACCES || error == EPERM || error == ENOENT;  // ENOENT: other users' are hidden
  if (denied && user_ != 0) error = read_counters_as(user_, group_, path.c_str(), text);
  if (error != 0) usage_failed(path.c_str(), error);
  return text;
}

int SandboxUsage::threads() const {
  const std::string text = read("stat");
  // The name in parentheses is the process's own choice; the number of threads is the 18th field behind it.
  std::string_view rest = text;
  rest.remove_prefix(std::min(rest.rfind(')'), rest.size()));
  for (int field = 0; field < 18; ++field) rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
  return static_cast<int>(counter(rest, "", "/proc/PID/stat"));
}

std::uint64_t SandboxUsage::written_bytes() const {
  const std::string text = read("io");
  return std::max(counter(text, "wchar: ", "/proc/PID/io"), counter(text, kDirtied, "/proc/PID/io"));
}

std::uint64_t dirtied_by_this_thread() {
  constexpr const char* kPath = "/proc/thread-self/io";
  std::string text;
  if (const int error = read_counters(kPath, text)) usage_failed(kPath, error);
  return counter(text, kDirtied, kPath);
}

namespace {

namespace fs = std::filesystem;

constexpr int kMaxCountedDepth = 64;
constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

using Entries = std::unique_ptr<DIR, CloseFolder>;

/// Returns the entries of a folder from the first one on; null with errno when they cannot be listed.
Entries entries_of(int parent, const char* folder) {
  const int opened = openat(parent, folder, kOpenFolder);
  if (opened < 0) return nullptr;
  Entries entries(fdopendir(opened));  // owns it from here on
  if (!entries) {
    const int error = errno;
    close(opened);
    errno = error;
  }
  return entries;
}

bool is_dots(std::string_view name) { return name == "." || name == ".."; }

/// Opens a folder in `parent`. Its owner may have left it without permissions.
UniqueFd open_folder(int parent, const char* name) {
  UniqueFd folder(openat(parent, name, kOpenFolder));
  if (folder || errno != EACCES) return folder;
  fchmodat(parent, name, S_IRWXU, AT_SYMLINK_NOFOLLOW);
  return UniqueFd(openat(parent, name, kOpenFolder));
}

/// A folder on the way down, to which the way up must lead: other processes of its owner may move what is below it.
struct Level {
  std::string below;  // the entry that was entered
  dev_t device = 0;
  ino_t inode = 0;

  bool is(int folder) const {
    struct stat found {};
    return fstat(folder, &found) == 0 && found.st_dev == device && found.st_ino == inode;
  }
};

/// Removes the files and the empty folders of a folder, up to the first folder that is not empty, and returns its name;
/// empty when nothing is left that can be removed.
std::string empty_up_to_folder(int folder) {
  const Entries entries = entries_of(folder, ".");
  if (!entries) return {};
  while (const dirent* entry = readdir(entries.get())) {
    if (is_dots(entry->d_name)) continue;
    if (unlinkat(folder, entry->d_name, 0) == 0 || errno == ENOENT) continue;
    if (unlinkat(folder, entry->d_name, AT_REMOVEDIR) == 0) continue;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == EACCES) return entry->d_name;
  }
  return {};
}

/// Counts files and folders, and their bytes, up to a limit of each.
class Count {
 public:
  Count(int entries, std::uint64_t bytes) : max_entries_(entries), max_bytes_(bytes) {}

  /// Counts what is in a folder and below it. Returns which limit is exceeded, or an empty text. A process may move and
  /// remove what is being counted: what is gone is left out.
  std::string add(const Entries& folder, int depth) {
    while (true) {
      errno = 0;
      const dirent* entry = readdir(folder.get());
      if (entry == nullptr) return errno == 0 || is_gone(errno) ? "" : unlisted(errno);
      if (is_dots(entry->d_name)) continue;
      if (++entries_ > max_entries_) return fmt::format("more than {} files", max_entries_);
      std::string problem = add(dirfd(folder.get()), entry->d_name, depth);
      if (!problem.empty()) return problem;
    }
  }

  /// Judges an error number: the process may have closed its folder to its host.
  static std::string unlisted(int error) {
    if (error == EACCES || error == EPERM) return "a folder that cannot be listed";
    throw std::system_error(error, std::generic_category(), "sandbox: cannot count the files of the process");
  }

 private:
  static bool is_gone(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP; }

  std::string add(int folder, const char* name, int depth) {
    struct stat found {};
    if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) != 0) return is_gone(errno) ? "" : unlisted(errno);
    bytes_ += static_cast<std::uint64_t>(found.st_blocks) * 512;
    if (bytes_ > max_bytes_) return fmt::format("more than {} MiB in files", max_bytes_ >> 20);
    if (!S_ISDIR(found.st_mode)) return {};
    if (depth == kMaxCountedDepth) return fmt::format("folders nested deeper than {}", kMaxCountedDepth);
    const Entries below = entries_of(folder, name);
    if (!below) return is_gone(errno) ? "" : unlisted(errno);
    return add(below, depth + 1);
  }

  int max_entries_, entries_ = 0;
  std::uint64_t max_bytes_, bytes_ = 0;
};

/// Removes what is in a folder.
void empty_tree(UniqueFd current) {
  // Goes down and up one level at a time: a path of thousands of levels is longer than the system allows, and so many
  // descriptors cannot be open at once.
  std::vector<Level> levels;  // from the folder to the current one
  while (current) {
    fchmod(current.get(), S_IRWXU);
    const std::string name = empty_up_to_folder(current.get());
    if (!name.empty()) {
      UniqueFd below = open_folder(current.get(), name.c_str());
      struct stat here {};
      if (!below || fstat(current.get(), &here) != 0) break;
      levels.push_back({name, here.st_dev, here.st_ino});
      current = std::move(below);
    } else {
      if (levels.empty()) break;
      current = UniqueFd(openat(current.get(), "..", kOpenFolder));
      if (!current || !levels.back().is(current.get())) break;
      if (unlinkat(current.get(), levels.back().below.c_str(), AT_REMOVEDIR) != 0) break;
      levels.pop_back();
    }
  }
}

}  // namespace

void remove_tree(const fs::path& folder) {
  empty_tree(open_folder(AT_FDCWD, folder.c_str()));
  rmdir(folder.c_str());
}

SandboxFolder::SandboxFolder() {
  std::string name = (fs::temp_directory_path() / "baton-tool-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error(fmt::format("sandbox: cannot make the folder {}: {}", name, std::strerror(errno)));
  }
  path_ = name;
  folder_ = UniqueFd(open(name.c_str(), kOpenFolder));
  if (folder_) spare_ = UniqueFd(fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0));
  if (!spare_) {
    const int error = errno;
    rmdir(name.c_str());
    throw std::runtime_error(fmt::format("sandbox: cannot open the folder {}: {}", name, std::strerror(error)));
  }
}

SandboxFolder::~SandboxFolder() {
  spare_.reset();
  try_to([&] { empty_tree(std::move(folder_)); });  // the folder itself, also if the process has moved it
  rmdir(path_.c_str());
}

int SandboxFolder::give_to(uid_t user, gid_t group) const {
  return fchown(folder_.get(), user, group) == 0 ? 0 : errno;
}

std::string SandboxFolder::exceeds(int entries, std::uint64_t bytes) const {
  const Entries top = entries_of(folder_.get(), ".");
  return top ? Count(entries, bytes).add(top, 0) : Count::unlisted(errno);
}

bool SandboxFolder::counts_writes() const {
  constexpr char kName[] = "counted";
  constexpr char kText[] = "x";
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < sizeof(kText)) return false;  // a signal, else
  const UniqueFd file(openat(folder_.get(), kName, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return false;
  unlinkat(folder_.get(), kName, 0);
  const std::uint64_t before = dirtied_by_this_thread();
  return write(file.get(), kText, sizeof(kText)) == sizeof(kText) && dirtied_by_this_thread() > before;
}

}  // namespace baton
