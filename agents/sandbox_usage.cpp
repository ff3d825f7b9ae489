// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_usage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "agents/sandbox_memory.h"
#include "engine/base/system/unique_fd.h"

namespace baton {
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

}  // namespace baton
