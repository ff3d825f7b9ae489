// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "agents/sandbox_child.h"
#include "agents/sandbox_filter.h"
#include "agents/sandbox_folder.h"
#include "agents/sandbox_landlock.h"
#include "agents/sandbox_process.h"
#include "agents/sandbox_view.h"

namespace baton {
namespace {

using End = SandboxResult::End;

constexpr rlim_t kMaxFileBytes = 16 << 20;
constexpr std::uint64_t kMaxWrittenBytes = 64 << 20;
constexpr int kMaxEntries = 4096;  // files and folders in its folder
constexpr rlim_t kMaxOpenFiles = 64;
constexpr int kMaxThreads = 128;
constexpr uid_t kNobody = 65534;  // the kernel's own number for a user who owns nothing
constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

/// The optional layers of one process, other than Landlock.
struct Means {
  bool namespaces = false;
  bool nobody = false;  // becomes another user, which only root can
};

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

/// Returns an anonymous file that holds the input and cannot be changed, so that the host need not feed a pipe that
/// could break.
UniqueFd input_file(const std::string& input) {
  UniqueFd file = above_standard(memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (std::size_t done = 0; done < input.size();) {
    const ssize_t wrote = write(file.get(), input.data() + done, input.size() - done);
    if (wrote < 0) fail("cannot write the input", errno);
    done += static_cast<std::size_t>(wrote);
  }
  lseek(file.get(), 0, SEEK_SET);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    fail("cannot seal the input", errno);
  }
  return file;
}

std::vector<std::filesystem::path> readable_paths(const SandboxRequest& request) {
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
                                              "/dev/null",
                                              "/dev/urandom",
                                              "/dev/random",
                                              "/dev/zero",
                                              "/proc/cpuinfo",
                                              "/proc/meminfo",
                                              "/sys/devices/system/cpu"};
  readable.insert(readable.end(), request.readable.begin(), request.readable.end());
  return readable;
}

std::vector<SandboxChild::Limit> limits_of(const SandboxRequest& request) {
  const auto seconds = static_cast<rlim_t>((request.timeout.count() + 999) / 1000 + 1);
  const std::pair<int, rlim_t> wanted[] = {
      {RLIMIT_AS, static_cast<rlim_t>(request.memory_bytes)},
      {RLIMIT_CPU, seconds},
      {RLIMIT_FSIZE, kMaxFileBytes},
      {RLIMIT_NOFILE, kMaxOpenFiles},
      {RLIMIT_CORE, 1},  // no core file, and unlike with 0 no program of the system that collects it
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

/// True where the limit of threads counts those of one user namespace; before, it counts all processes of the user.
bool counts_threads_by_namespace() {
  utsname system{};
  int major = 0, minor = 0;
  return uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) >= std::pair(5, 14);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// All that a child reads before it is its program, made in advance.
class ChildPlan {
 public:
  ChildPlan(const Means& means, bool landlock, const std::vector<sock_filter>& filter, const SandboxRequest& request)
      : readable_(readable_paths(request)), limits_(limits_of(request)), command_(request.command) {
    home_ = folder_.path().string();
    if (means.namespaces) make_view(means);
    if (means.nobody) become_nobody(means);
    if (landlock) rules_ = make_landlock_rules(readable_);
    child_.landlock = rules_.rules.get();
    child_.landlock_folder = rules_.folder_rights;
    child_.seccomp = {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
    child_.limits = limits_.data();
    child_.limit_count = limits_.size();
    set_program();
  }
  ChildPlan(const ChildPlan&) = delete;
  ChildPlan& operator=(const ChildPlan&) = delete;

  SandboxChild& child() { return child_; }
  int namespaces() const { return namespaces_; }  // flags of clone
  const SandboxFolder& folder() const { return folder_; }

 private:
  void make_view(const Means& means) {
    std::error_code ignored;
    const std::filesystem::path program = command_.empty() ? "" : command_.front();
    view_ = make_sandbox_view(folder_.path(), readable_, std::filesystem::canonical(program, ignored));
    view_.folder_options = fmt::format("size={},nr_inodes={},mode=0700", kMaxWrittenBytes, kMaxEntries);
    if (means.nobody) view_.folder_options += fmt::format(",uid={0},gid={0}", kNobody);
    for (const SandboxView::Mount& mount : view_.mounts) {
      mounts_.push_back({mount.source.c_str(), mount.target.c_str(), mount.device});
    }
    home_ = SandboxView::kFolder;
    child_.view = view_.root.c_str();
    child_.mounts = mounts_.data();
    child_.mount_count = mounts_.size();
    child_.folder_mount = view_.folder.c_str();
    child_.folder_options = view_.folder_options.c_str();
    namespaces_ = kNamespaces;
    const bool root = geteuid() == 0;
    if (counts_threads_by_namespace() && (means.nobody || !root)) child_.max_threads = kMaxThreads;  // root's: never
    if (root) return;
    // Root needs no user namespace to make the others. Other users get one in which they are themselves.
    namespaces_ |= CLONE_NEWUSER;
    user_map_ = fmt::format("{0} {0} 1", geteuid());
    group_map_ = fmt::format("{0} {0} 1", getegid());
    child_.user_map = user_map_.c_str();
    child_.group_map = group_map_.c_str();
  }

  void become_nobody(const Means& means) {
    child_.user = kNobody;
    child_.group = kNobody;
    if (!means.namespaces) folder_.give_to(kNobody, kNobody);
  }

  void set_program() {
    // Linear algebra libraries get one thread, since each further thread uses address space that the limit counts.
    environment_ = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8",           "HOME=" + home_,    "TMPDIR=" + home_,
                    "OMP_NUM_THREADS=1",  "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"};
    arguments_ = pointers(command_);
    variables_ = pointers(environment_);
    child_.program = arguments_.front();
    child_.arguments = arguments_.data();
    child_.environment = variables_.data();
    child_.folder = home_.c_str();
  }

  SandboxFolder folder_;
  std::vector<std::filesystem::path> readable_;
  std::vector<SandboxChild::Limit> limits_;
  std::vector<std::string> command_, environment_;
  std::vector<char*> arguments_, variables_;
  std::string home_, user_map_, group_map_;
  SandboxView view_;
  std::vector<SandboxChild::Mount> mounts_;
  LandlockRules rules_;
  int namespaces_ = 0;
  SandboxChild child_;
};

/// Runs the process in the given layers. Without a command, it only tries them.
SandboxResult run_in(const Means& means, bool landlock, const std::vector<sock_filter>& filter,
                     const SandboxRequest& request) {
  ChildPlan plan(means, landlock, filter, request);
  SandboxChild& child = plan.child();
  const UniqueFd input = input_file(request.input);
  int pipe_ends[2] = {-1, -1};
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
  const UniqueFd stream(pipe_ends[0]);
  UniqueFd child_output = above_standard(pipe_ends[1]);
  fcntl(stream.get(), F_SETFL, O_NONBLOCK);
  child.input = input.get();
  child.output = child_output.get();

  SandboxProcess process(child, plan.namespaces());
  child_output.reset();
  KeptOutput output(request.output_bytes);
  std::function<bool()> exceeds;  // where the kernel does not count for this process alone
  if (!means.namespaces || !child.counts_threads) {
    exceeds = [&] {
      if (!child.counts_threads && process.threads() > kMaxThreads) return true;
      return !means.namespaces && (process.written_bytes() > kMaxWrittenBytes + output.total() ||
                                   plan.folder().holds_more_than(kMaxEntries, kMaxWrittenBytes));
    };
  }
  SandboxResult result;
  result.end = process.watch(stream.get(), output, request, exceeds);
  siginfo_t status{};
  if (process.end(status) && result.end == End::exited) {
    result.code = status.si_status;
    if (status.si_code != CLD_EXITED) result.end = End::signalled;
  }
  result.output = std::move(output).text();
  return result;
}

}  // namespace

struct Sandbox::Rules {
  SandboxLayers layers;
  std::vector<sock_filter> seccomp = make_seccomp_filter();
  std::once_flag once;
  Means means;
  std::string without_namespaces;  // why there are none

  /// Finds the strongest layers in which a process can be started.
  const Means& tried() {
    std::call_once(once, [this] {
      const bool root = geteuid() == 0;
      if (!layers.namespaces) without_namespaces = "switched off";
      if (layers.namespaces && works({true, root}, without_namespaces)) return;
      std::string ignored;
      if (layers.namespaces && root && works({true, false}, ignored)) return;
      if (root) works({false, true}, ignored);
    });
    return means;
  }

  /// Tries a process. What fails for a lack of resources throws, so that it does not pass for a lack of rights.
  bool works(const Means& candidate, std::string& problem) {
    try {
      const SandboxResult result = run_in(candidate, layers.landlock, seccomp, {});
      if (result.end == End::exited && result.code == 0) {
        means = candidate;
        return true;
      }
      if (result.end != End::signalled || result.code != SIGSYS) {
        throw std::runtime_error("sandbox: cannot try which layers hold: a first process was ended");
      }
      problem = "a filter of system calls around this process";
    } catch (const SandboxNotStarted& error) {
      for (const int transient : {EAGAIN, ENOMEM, EMFILE, ENFILE, EINTR}) {
        if (error.code().value() == transient) throw;
      }
      problem = error.what();
    }
    return false;
  }
};

Sandbox::Sandbox(SandboxLayers layers) : rules_(std::make_unique<Rules>()) { rules_->layers = layers; }
Sandbox::~Sandbox() = default;

SandboxResult Sandbox::run(const SandboxRequest& request) const {
  if (rules_->seccomp.empty()) {
    throw std::runtime_error("sandbox: this system has no seccomp filters, and no code is run unconfined");
  }
  return run_in(rules_->tried(), rules_->layers.landlock, rules_->seccomp, request);
}

std::vector<IsolationFact> Sandbox::isolation() const {
  const bool seccomp = !rules_->seccomp.empty();
  if (!seccomp) {
    return {{"system calls", false, "no seccomp filters in this kernel: tools that run code are refused"}};
  }
  const Means& means = rules_->tried();
  const int landlock = rules_->layers.landlock ? landlock_version() : 0;
  const bool files = landlock > 0 || means.namespaces;
  const std::string readable = means.nobody ? "what any user may read" : "what the user may read and write";
  std::vector<IsolationFact> facts{
      {"system calls", true, "seccomp: a list of allowed calls; no other processes, no sockets, no signals to others"},
      {"Landlock", landlock > 0,
       landlock > 0 ? fmt::format("version {}: reads the system and the interpreter, writes its own folder", landlock)
       : files      ? "not in this kernel (5.13 or later); the namespaces hide other files"
                    : "not in this kernel (5.13 or later), and no namespaces: code may use " + readable},
      {"namespaces", means.namespaces,
       means.namespaces ? "files, processes, network, IPC: a tree of its own, in which nothing else of the host exists"
                        : "not allowed here (" + rules_->without_namespaces +
                              "): code learns of files that exist, and its files and threads are counted from outside"},
  };
  if (geteuid() == 0) {
    facts.push_back({"user", means.nobody,
                     means.nobody ? "not root: it runs as the user with the number 65534, without capabilities"
                                  : "root cannot change its user here: it runs as root, without capabilities"});
  }
  facts.push_back({"limits", true, "time, memory, file size, files, written bytes, open files, threads, output"});
  return facts;
}

}  // namespace baton
