// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_plan.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "agents/sandbox_process.h"
#include "engine/base/clock.h"

namespace baton {
namespace {

constexpr rlim_t kMaxFileBytes = 16 << 20;
constexpr rlim_t kMaxOpenFiles = 64;
constexpr uid_t kNobody = 65534;  // the kernel's own number for a user who owns nothing
constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

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
  const auto seconds = static_cast<rlim_t>((bounded_wait(request.timeout).count() + 999) / 1000 + 1);
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
    if (getrlimit(static_cast<__rlimit_resource>(resource), &old) != 0) {
      throw std::system_error(errno, std::generic_category(), "sandbox: cannot read a limit");
    }
    const rlim_t allowed = std::min(value, old.rlim_max);  // only root could raise the hard limit
    limits.push_back({resource, {allowed, allowed}});
  }
  return limits;
}

/// Returns a bound of the host's descriptors, where each has to be closed by a call of its own.
unsigned max_descriptors() {
  constexpr rlim_t kMin = 1 << 16, kMax = 1 << 20;  // a limit may have been lowered; a million calls take 0.1 s
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMax;
  return static_cast<unsigned>(std::clamp(limit.rlim_max, kMin, kMax));
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

sock_fprog program_of(const std::vector<sock_filter>& filter) {
  return {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
}

}  // namespace

SandboxPlan::SandboxPlan(const SandboxMeans& means, const std::vector<sock_filter>& filter,
                         const SandboxRequest& request)
    : readable_(readable_paths(request)), limits_(limits_of(request)), command_(request.command) {
  home_ = folder_.path().string();
  // Files that are mapped are written without a call, and the folder's own file system has a size.
  set_filters(filter, means.namespaces || folder_.counts_writes());
  if (means.namespaces) make_view(means);
  if (means.nobody) become_nobody(means);
  if (means.landlock) rules_ = make_landlock_rules(readable_);
  child_.landlock = rules_.rules.get();
  child_.landlock_folder = rules_.folder_rights;
  child_.limits = limits_.data();
  child_.limit_count = limits_.size();
  child_.max_descriptors = max_descriptors();
  set_program();
}

void SandboxPlan::make_view(const SandboxMeans& means) {
  std::error_code ignored;
  const std::filesystem::path program = command_.empty() ? "" : command_.front();
  view_ = make_sandbox_view(folder_.path(), readable_, std::filesystem::canonical(program, ignored));
  view_.folder_options =
      fmt::format("size={},nr_inodes={},mode=0700", SandboxBounds::kWrittenBytes, SandboxBounds::kEntries);
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
  if (counts_threads_by_namespace() && (means.nobody || !root)) {  // root's are never limited
    child_.max_threads = SandboxBounds::kThreads;
  }
  if (root) return;
  // Root needs no user namespace to make the others. Other users get one in which they are themselves.
  namespaces_ |= CLONE_NEWUSER;
  user_map_ = fmt::format("{0} {0} 1", geteuid());
  group_map_ = fmt::format("{0} {0} 1", getegid());
  child_.user_map = user_map_.c_str();
  child_.group_map = group_map_.c_str();
}

void SandboxPlan::become_nobody(const SandboxMeans& means) {
  child_.user = kNobody;
  child_.group = kNobody;
  if (means.namespaces) return;
  if (const int error = folder_.give_to(kNobody, kNobody)) {
    throw SandboxNotStarted(error, std::generic_category(),
                            fmt::format("sandbox: cannot give its folder to the user {}", kNobody));
  }
}

void SandboxPlan::set_filters(const std::vector<sock_filter>& filter, bool shared_files) {
  exec_key_ = make_exec_key();
  process_filter_ = make_process_filter(exec_key_, shared_files);
  child_.seccomp = program_of(filter);
  child_.process_seccomp = program_of(process_filter_);
  child_.exec_key = exec_key_.data();
}

void SandboxPlan::set_program() {
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

}  // namespace baton
