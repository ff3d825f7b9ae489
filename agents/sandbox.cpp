// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "agents/sandbox_child.h"
#include "agents/sandbox_rules.h"
#include "engine/base/clock.h"

// ThreadSanitizer's clone() treats every child as a copy of the process with its own bookkeeping; this child shares the
// host's memory. The C library has the plain call under a second name.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BATON_THREAD_SANITIZER
#endif
#endif
#if defined(BATON_THREAD_SANITIZER) || defined(__SANITIZE_THREAD__)
extern "C" int __clone(int (*)(void*), void*, int, void*, ...) noexcept;
#define clone __clone
#endif

namespace baton {
namespace {

using End = SandboxResult::End;

constexpr std::size_t kChildStackBytes = 64 << 10;
constexpr std::size_t kFloodFactor = 64;  // a process is killed when it writes this many times output_bytes
constexpr rlim_t kMaxFileBytes = 16 << 20;
constexpr rlim_t kMaxOpenFiles = 64;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(fmt::format("sandbox: {}: {}", what, std::strerror(error)));
}

/// Returns a descriptor above 2, so that making it a standard stream of the child never closes one that is still
/// needed.
UniqueFd above_standard(int fd) {
  UniqueFd given(fd);
  if (!given) fail("cannot open a file descriptor", errno);
  if (fd > 2) return given;
  UniqueFd moved(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!moved) fail("cannot duplicate a file descriptor", errno);
  return moved;
}

/// A new folder that is removed with its content when the object is destroyed.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "baton-tool-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail("cannot make the folder " + name, errno);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Returns an anonymous file that holds the input, so that the host need not feed a pipe that could break.
UniqueFd input_file(const std::string& input) {
  UniqueFd file = above_standard(memfd_create("input", MFD_CLOEXEC));
  for (std::size_t done = 0; done < input.size();) {
    const ssize_t wrote = write(file.get(), input.data() + done, input.size() - done);
    if (wrote < 0) fail("cannot write the input", errno);
    done += static_cast<std::size_t>(wrote);
  }
  lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// Keeps the first and the last half of the output.
class KeptOutput {
 public:
  explicit KeptOutput(std::size_t limit) : half_(std::max<std::size_t>(limit / 2, 1)) {}

  void add(const char* data, std::size_t bytes) {
    total_ += bytes;
    const std::size_t to_head = std::min(bytes, half_ - head_.size());
    head_.append(data, to_head);
    tail_.append(data + to_head, bytes - to_head);
    if (tail_.size() > 4 * half_) tail_.erase(0, tail_.size() - half_);
  }
  bool flooded() const { return total_ > kFloodFactor * 2 * half_; }

  std::string text() && {
    if (tail_.size() > half_) tail_.erase(0, tail_.size() - half_);
    const std::size_t missing = total_ - head_.size() - tail_.size();
    if (missing > 0) head_ += fmt::format("\n[... {} bytes left out ...]\n", missing);
    return std::move(head_) + tail_;
  }

 private:
  std::size_t half_;
  std::size_t total_ = 0;
  std::string head_, tail_;
};

std::vector<SandboxChild::Limit> limits_of(const SandboxRequest& request) {
  const auto seconds = static_cast<rlim_t>((request.timeout.count() + 999) / 1000 + 1);
  const std::pair<int, rlim_t> wanted[] = {
      {RLIMIT_AS, static_cast<rlim_t>(request.memory_bytes)},
      {RLIMIT_CPU, seconds},
      {RLIMIT_FSIZE, kMaxFileBytes},
      {RLIMIT_NOFILE, kMaxOpenFiles},
      {RLIMIT_CORE, 0},
  };
  std::vector<SandboxChild::Limit> limits;
  for (const auto& [resource, value] : wanted) {
    rlimit old{};
    getrlimit(static_cast<__rlimit_resource>(resource), &old);
    const rlim_t allowed = std::min(value, old.rlim_max);  // only root could raise the hard limit
    limits.push_back({resource, {allowed, allowed}});
  }
  return limits;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

struct Process {
  UniqueFd handle;  // a pidfd, which cannot refer to another process after the pid is reused
  pid_t pid = 0;
};

/// Starts the child as posix_spawn does: the host's pages are not copied, and this thread waits until the child has
/// executed its program.
Process start(SandboxChild& child) {
  std::vector<std::byte> stack(kChildStackBytes);
  void* top = stack.data() + stack.size();
  top = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15});
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int handle = -1;
  const int pid = clone(sandbox_child, top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &child, &handle);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) fail("cannot start a process", error);
  return {UniqueFd(handle), pid};
}

/// Kills the process if it still runs, and reaps it. Returns true with its exit status, false when someone else reaped
/// it.
bool end(const Process& process, siginfo_t& status) {
  syscall(SYS_pidfd_send_signal, process.handle.get(), SIGKILL, nullptr, 0);
  kill(-process.pid, SIGKILL);  // the pid is not reused before the wait below
  int result = -1;
  do {
    result = waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process.handle.get()), &status, WEXITED);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

/// Reads all available output without waiting. Returns false at the end of the stream.
bool drain(int fd, KeptOutput& output) {
  std::array<char, 16384> buffer;
  while (!output.flooded()) {
    const ssize_t bytes = read(fd, buffer.data(), buffer.size());
    if (bytes > 0) {
      output.add(buffer.data(), static_cast<std::size_t>(bytes));
    } else {
      return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    }
  }
  return true;
}

/// Waits until the process ends by itself or has to be killed, and returns which.
End watch(const Process& process, int stream, KeptOutput& output, const SandboxRequest& request) {
  const Clock::time_point deadline = Clock::now() + request.timeout;
  const UniqueFd stopped(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stopped) fail("cannot make an event", errno);
  const std::stop_callback on_stop(request.stop, [&] { eventfd_write(stopped.get(), 1); });
  pollfd watched[] = {{process.handle.get(), POLLIN, 0}, {stopped.get(), POLLIN, 0}, {stream, POLLIN, 0}};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return End::timed_out;
    if (poll(watched, 3, static_cast<int>(std::min<std::int64_t>(left, 60000))) < 0) {
      if (errno == EINTR) continue;
      fail("poll", errno);
    }
    if (watched[1].revents != 0) return End::stopped;
    if (watched[2].revents != 0 && !drain(stream, output)) watched[2].fd = -1;
    if (output.flooded()) return End::flooded;
    if (watched[0].revents != 0) {
      drain(stream, output);
      return End::exited;
    }
  }
}

}  // namespace

struct Sandbox::Rules {
  std::vector<sock_filter> seccomp = make_seccomp_filter();
};

Sandbox::Sandbox() : rules_(std::make_unique<const Rules>()) {}
Sandbox::~Sandbox() = default;

SandboxResult Sandbox::run(const SandboxRequest& request) const {
  if (rules_->seccomp.empty()) {
    throw std::runtime_error("sandbox: this system has no seccomp filters, and no code is run unconfined");
  }
  const TemporaryFolder folder;
  const std::string home = folder.path().string();
  const UniqueFd input = input_file(request.input);
  int pipe_ends[2] = {-1, -1};
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
  const UniqueFd stream(pipe_ends[0]);
  UniqueFd child_output = above_standard(pipe_ends[1]);
  fcntl(stream.get(), F_SETFL, O_NONBLOCK);

  std::vector<std::filesystem::path> readable{"/usr",
                                              "/bin",
                                              "/lib",
                                              "/lib64",
                                              "/nix/store",
                                              "/gnu/store",
                                              "/etc/ld.so.cache",
                                              "/etc/localtime",
                                              "/etc/alternatives",
                                              "/etc/mime.types",
                                              "/dev/urandom",
                                              "/dev/random",
                                              "/dev/zero",
                                              "/proc/cpuinfo",
                                              "/proc/meminfo",
                                              "/sys/devices/system/cpu"};
  readable.insert(readable.end(), request.readable.begin(), request.readable.end());
  const UniqueFd landlock = make_landlock_rules(readable, folder.path());
  const std::vector<SandboxChild::Limit> limits = limits_of(request);

  std::vector<std::string> command = request.command;
  // Linear algebra libraries get one thread, since each further thread uses address space that the limit counts.
  std::vector<std::string> environment{"PATH=/usr/bin:/bin", "LANG=C.UTF-8",      "HOME=" + home,
                                       "TMPDIR=" + home,     "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
                                       "MKL_NUM_THREADS=1"};
  const std::vector<char*> arguments = pointers(command), variables = pointers(environment);

  SandboxChild child;
  child.program = arguments.front();
  child.arguments = arguments.data();
  child.environment = variables.data();
  child.folder = home.c_str();
  child.input = input.get();
  child.output = child_output.get();
  child.landlock = landlock.get();
  child.seccomp = {static_cast<unsigned short>(rules_->seccomp.size()),
                   const_cast<sock_filter*>(rules_->seccomp.data())};
  child.limits = limits.data();
  child.limit_count = limits.size();

  const Process process = start(child);
  child_output.reset();
  siginfo_t status{};
  if (child.failed != nullptr) {
    end(process, status);
    fail(child.failed, child.error);
  }
  KeptOutput output(request.output_bytes);
  SandboxResult result;
  try {
    result.end = watch(process, stream.get(), output, request);
  } catch (...) {
    end(process, status);
    throw;
  }
  if (end(process, status) && result.end == End::exited) {
    result.code = status.si_status;
    if (status.si_code != CLD_EXITED) result.end = End::signalled;
  }
  result.output = std::move(output).text();
  return result;
}

std::vector<IsolationFact> Sandbox::isolation() const {
  const bool seccomp = !rules_->seccomp.empty();
  const int landlock = landlock_version();
  const std::string none = "no seccomp filters in this kernel: tools that run code are refused";
  return {
      {"processes", seccomp, seccomp ? "seccomp: one process, which cannot start others or signal any" : none},
      {"network", seccomp, seccomp ? "seccomp: no sockets" : none},
      {"files", landlock > 0,
       landlock > 0
           ? fmt::format("Landlock {}: reads the system and the interpreter, writes only its own folder", landlock)
           : "no Landlock in this kernel (5.13 or later): what the user may read and write, a tool may too"},
      {"limits", true, "time, memory, file size, open files, output; no capabilities, a bare environment"},
  };
}

}  // namespace baton
