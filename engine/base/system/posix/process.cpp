// SPDX-License-Identifier: Apache-2.0
// This process and the machine. Linux says in control groups what a container may use.
#include <sys/mman.h>
#include <unistd.h>

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>  // defines __GLIBC__
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "engine/base/system/process.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

namespace baton {

namespace fs = std::filesystem;
namespace {

/// While it lives, the signal is kept from this thread.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    was_pending_ = is_pending();
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    if (!was_pending_) take();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static bool is_pending() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE) == 1;
  }

  void take() const {
#ifdef __APPLE__
    if (int signal = 0; is_pending()) sigwait(&pipe_, &signal);
#else
    const timespec now{0, 0};
    while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
#endif
  }

  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace

std::int64_t process_number() { return ::getpid(); }

fs::path own_program() {
#ifdef __APPLE__
  std::array<char, 4096> name{};
  auto size = static_cast<std::uint32_t>(name.size());
  if (_NSGetExecutablePath(name.data(), &size) != 0) return {};
  const fs::path link = name.data();
  std::error_code error;
  const fs::path program = fs::canonical(link, error);
#else
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
#endif
  return error ? fs::path() : program;
}

fs::path module_of(const void* code) {
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  return fs::canonical(info.dli_fname, error);
}

bool is_executable(const fs::path& file) { return ::access(file.c_str(), X_OK) == 0; }

void block_pipe_signal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

void without_pipe_signal(const std::function<void()>& work) {
  const NoPipeSignal no_signal;
  work();
}

void wait_while(const std::atomic<std::int32_t>& number, std::int32_t old) noexcept { number.wait(old); }
void wake_all(std::atomic<std::int32_t>& number) noexcept { number.notify_all(); }

}  // namespace baton

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace baton {

// The control groups that this process is in: where Linux says what a container may use.

enum class GroupVersion : std::uint8_t { one, two };

/// Calls `visit` with the folder of each group that limits `controller` ("memory", "cpu") for this process: its own
/// and those around it, versions 2 and 1. Folders may not exist. `root` stands for "/".
void visit_groups(const std::filesystem::path& root, const std::string& controller,
                  const std::function<void(const std::filesystem::path& folder, GroupVersion)>& visit);

/// The first number in a file; nothing: there is no such file, or it begins with none ("max").
std::optional<std::int64_t> number_in(const std::filesystem::path& file);

namespace fs = std::filesystem;

/// A container may see the path that its host knows, and its own group at the mount: the mount is visited, too.
void visit_groups(const fs::path& root, const std::string& controller,
                  const std::function<void(const fs::path& folder, GroupVersion)>& visit) {
  const fs::path groups = root / "sys/fs/cgroup";
  const auto visit_around = [&](const fs::path& mount, const fs::path& path, GroupVersion version) {
    for (fs::path at = path.relative_path(); !at.empty(); at = at.parent_path()) visit(mount / at, version);
    visit(mount, version);
  };
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {  // "0::/path", "9:cpu,cpuacct:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = fs::path(line.substr(second + 1)).lexically_normal();
    if (controllers == ",,") {
      visit_around(groups, path, GroupVersion::two);
      visit_around(groups / "unified", path, GroupVersion::two);
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      visit_around(groups / controller, path, GroupVersion::one);
    }
  }
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;
}

// Linux tells it in /proc; other systems of this kind have none, and only say how many cores there are.

namespace {

namespace fs = std::filesystem;

/// The microseconds of processor time in each period of a group; no limit unless both are above 0.
struct Quota {
  std::int64_t time = 0, period = 0;
};

Quota quota_in(const fs::path& folder, GroupVersion version) {
  Quota quota;
  if (version == GroupVersion::one) {  // time is -1 without a limit
    return {number_in(folder / "cpu.cfs_quota_us").value_or(-1), number_in(folder / "cpu.cfs_period_us").value_or(0)};
  }
  std::ifstream file(folder / "cpu.max");  // "150000 100000", "max 100000"
  return file >> quota.time >> quota.period ? quota : Quota{};
}

int scheduled_cores() {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int usable_cores(const fs::path& root) {
  std::int64_t cores = scheduled_cores();
  visit_groups(root, "cpu", [&](const fs::path& folder, GroupVersion version) {
    const Quota quota = quota_in(folder, version);
    if (quota.time > 0 && quota.period > 0)
      cores = std::min(cores, std::max<std::int64_t>(quota.time / quota.period, 1));
  });
  return static_cast<int>(cores);
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::string vector_instructions() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::string found;
    for (const std::string flag :
         {"avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "bf16", "sve"}) {
      if ((line + " ").find(" " + flag + " ") != std::string::npos) found += (found.empty() ? "" : " ") + flag;
    }
    return found;
  }
  return {};
}

// Linux says in files what the machine has, and what its control groups allow.

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxLimit = std::int64_t{1} << 60;  // version 1 says "none" with a greater number

/// The files of one version of control groups.
struct GroupFiles {
  const char* current;
  std::initializer_list<const char*> limits;
  const char* droppable;  // a line of memory.stat: cached files that were not used lately
};
const GroupFiles kVersion2 = {"memory.current", {"memory.max", "memory.high"}, "inactive_file"};
const GroupFiles kVersion1 = {"memory.usage_in_bytes", {"memory.limit_in_bytes"}, "total_inactive_file"};

/// The numbers of lines "name: number unit" or "name number".
std::int64_t line_of(const fs::path& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t number = 0;
    if (words >> key >> number && key == name) return number;
  }
  return 0;
}

/// Lowers `memory` to what the group in `folder` allows, if it has a limit.
void lower(MachineMemory& memory, const fs::path& folder, const GroupFiles& files) {
  for (const char* name : files.limits) {
    const auto limit = number_in(folder / name), current = number_in(folder / files.current);
    if (!limit || !current || *limit > kMaxLimit) continue;
    const std::int64_t used = *current - std::min(*current, line_of(folder / "memory.stat", files.droppable));
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.available_bytes = std::min(memory.available_bytes, std::max(*limit - used, std::int64_t{1}));
  }
}

}  // namespace

MachineMemory machine_memory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  MachineMemory memory = {1024 * line_of(meminfo, "MemAvailable:"), 1024 * line_of(meminfo, "MemTotal:")};
  MachineMemory lowered = memory;
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  if (memory.available_bytes <= 0) lowered = {kUnknown, kUnknown};
  visit_groups(root, "memory", [&](const fs::path& folder, GroupVersion version) {
    lower(lowered, folder, version == GroupVersion::two ? kVersion2 : kVersion1);
  });
  return lowered.available_bytes == kUnknown ? memory : lowered;
}

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void* map_pages(std::size_t bytes, [[maybe_unused]] bool huge) noexcept {
  const std::size_t reserved = bytes + kHugePage;
  void* base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(base);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  char* aligned = begin + before;
  if (before != 0) munmap(begin, before);
  char* end = aligned + bytes;
  if (end != begin + reserved) munmap(end, static_cast<std::size_t>(begin + reserved - end));
#ifdef MADV_HUGEPAGE
  if (huge) madvise(aligned, bytes, MADV_HUGEPAGE);  // only advice: a failure does no harm
#endif
  return aligned;
}

void unmap_pages(void* data, std::size_t bytes) noexcept { munmap(data, bytes); }

void lend_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_FREE
  madvise(data, bytes, MADV_FREE);
#endif
}

void return_free_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace baton
