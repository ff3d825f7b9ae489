// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/sandbox/plan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "agents/tools/sandbox/process.h"
#include "engine/base/clock.h"
#include "engine/base/system/file.h"

namespace baton {
namespace {

[[noreturn]] void landlock_failed(const std::string& what) {
  throw std::runtime_error("landlock: " + what + ": " + std::strerror(errno));
}

/// The kernel's landlock_ruleset_attr of version 6, which is newer than some headers.
struct RulesetAttributes {
  std::uint64_t files = 0;
  std::uint64_t network = 0;  // since version 4
  std::uint64_t scoped = 0;   // since version 6
};

constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kFilesOfVersion1 = (1u << 13) - 1;
constexpr std::uint64_t kRefer = 1u << 13;        // since version 2: rename from one folder to another
constexpr std::uint64_t kTruncate = 1u << 14;     // since version 3
constexpr std::uint64_t kDeviceIoctl = 1u << 15;  // since version 5
constexpr std::uint64_t kBindAndConnectTcp = 3;   // since version 4
constexpr std::uint64_t kSocketsAndSignals = 3;   // since version 6

}  // namespace

int landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version < 0 ? 0 : static_cast<int>(version);
}

LandlockRules make_landlock_rules(const std::vector<std::filesystem::path>& readable) {
  const int version = landlock_version();
  if (version == 0) return {};
  RulesetAttributes attributes;
  attributes.files = kFilesOfVersion1;
  if (version >= 2) attributes.files |= kRefer;
  if (version >= 3) attributes.files |= kTruncate;
  if (version >= 5) attributes.files |= kDeviceIoctl;
  if (version >= 4) attributes.network = kBindAndConnectTcp;
  if (version >= 6) attributes.scoped = kSocketsAndSignals;
  const std::size_t bytes = sizeof(std::uint64_t) * (version >= 6 ? 3 : version >= 4 ? 2 : 1);
  UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, bytes, 0)));
  if (rules && rules.get() <= STDERR_FILENO)  // the child puts other files there
    rules = UniqueFd(fcntl(rules.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!rules) landlock_failed("cannot make a ruleset");

  const auto allow = [&](const std::filesystem::path& path, std::uint64_t access) {
    const UniqueFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!place) {
      // A path is left out only if it cannot be read anyway: a program without its libraries does not start.
      for (const int absent : {ENOENT, ENOTDIR, EACCES, ELOOP, ENXIO, ENODEV}) {
        if (errno == absent) return;
      }
      landlock_failed("cannot open " + path.string());
    }
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) access &= ~std::uint64_t{LANDLOCK_ACCESS_FS_READ_DIR};
    landlock_path_beneath_attr rule{};
    rule.allowed_access = access;
    rule.parent_fd = place.get();
    if (syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
      landlock_failed("cannot add a rule for " + path.string());
    }
  };
  for (const std::filesystem::path& path : readable) allow(path, kRead);
  allow("/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
  return {std::move(rules), attributes.files & ~(kDeviceIoctl | LANDLOCK_ACCESS_FS_EXECUTE)};
}

namespace {

namespace fs = std::filesystem;

constexpr auto kOpenToAll = fs::perms(0755);

/// Makes `path` and all folders between it and `root`; any user may enter them.
void make_folders(const fs::path& root, const fs::path& path) {
  fs::path folder = root;
  for (const fs::path& part : path.relative_path()) {
    folder /= part;
    if (fs::create_directory(folder)) fs::permissions(folder, kOpenToAll);
  }
}

/// Makes a file to mount on. If it were missing, mounting would fail later as if it were not allowed.
void make_file(const fs::path& path) {
  if (UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600))) return;
  throw fs::filesystem_error("sandbox: cannot make a file", path, std::error_code(errno, std::generic_category()));
}

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(path.begin(), path.end(), folder.begin(), folder.end()).second == folder.end();
}

}  // namespace

SandboxView make_sandbox_view(const fs::path& root, std::vector<fs::path> readable, const fs::path& program) {
  SandboxView view;
  view.root = root.string();
  fs::permissions(root, kOpenToAll);
  std::error_code ignored;
  for (fs::path& path : readable) path = path.lexically_normal();
  std::sort(readable.begin(), readable.end());  // a folder stands in front of what is in it
  readable.erase(std::unique(readable.begin(), readable.end()), readable.end());
  fs::path last = "/";
  for (const fs::path& path : readable) {
    if (!fs::exists(path, ignored) || (last.has_relative_path() && is_below(path, last))) continue;
    const fs::path target = root / path.relative_path();
    if (fs::is_directory(path)) {
      make_folders(root, path);
      last = path;
    } else {
      make_folders(root, path.parent_path());
      make_file(target);
    }
    view.mounts.push_back({path.string(), target.string(), fs::is_character_file(path)});
  }
  make_folders(root, "/proc/self");
  if (!program.empty()) fs::create_symlink(program, root / "proc/self/exe");
  make_folders(root, SandboxView::kFolder);
  view.folder = view.root + SandboxView::kFolder;
  return view;
}

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

/// Returns a bound of the host's descriptors, in case each has to be closed by its own call.
unsigned max_descriptors() {
  constexpr rlim_t kMin = 1 << 16, kMax = 1 << 20;  // a limit may have been lowered; a million calls take 0.1 s
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMax;
  return static_cast<unsigned>(std::clamp(limit.rlim_max, kMin, kMax));
}

/// True if the limit of threads counts those of one user namespace; older kernels count all processes of the user.
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
