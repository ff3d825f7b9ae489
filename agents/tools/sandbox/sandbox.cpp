// SPDX-License-Identifier: Apache-2.0
// The layers of a sandbox depend on what the host may do.
#include "agents/tools/sandbox/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "agents/tools/sandbox/folder.h"
#include "agents/tools/sandbox/plan.h"
#include "agents/tools/sandbox/process.h"

namespace baton {

/// The rights of one thread. A host may give them up while it runs.
struct SandboxRights {
  uid_t user = 0;                  // the effective one
  std::uint64_t capabilities = 0;  // effective; bit n is the capability n

  bool operator==(const SandboxRights&) const = default;
};

SandboxRights rights_of_thread();

/// Returns the name of a capability that root needs and lacks to run a process as another user, or an empty text. Root
/// must be able to become that user and to end the user's process; without namespaces, it must also give the user a
/// folder, count the files in it and remove them.
std::string missing_for_other_user(const SandboxRights& rights, bool namespaces);

/// Returns the name of a system setting that forbids namespaces of some kind here, or an empty text. With such a
/// setting, making a namespace fails with the same error as if there were too many at the moment.
std::string forbids_namespaces();

SandboxRights rights_of_thread() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  SandboxRights rights;
  rights.user = geteuid();
  if (syscall(SYS_capget, &header, &sets) == 0) {
    rights.capabilities = sets[0].effective | std::uint64_t{sets[1].effective} << 32;
  }
  return rights;
}

std::string missing_for_other_user(const SandboxRights& rights, bool namespaces) {
  constexpr std::pair<int, const char*> kAlways[] = {
      {CAP_SETUID, "CAP_SETUID"}, {CAP_SETGID, "CAP_SETGID"}, {CAP_KILL, "CAP_KILL"}};
  constexpr std::pair<int, const char*> kForItsFolder[] = {
      {CAP_CHOWN, "CAP_CHOWN"}, {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, {CAP_FOWNER, "CAP_FOWNER"}};
  const auto lacks = [&](int capability) { return (rights.capabilities >> capability & 1) == 0; };
  for (const auto& [capability, name] : kAlways) {
    if (lacks(capability)) return name;
  }
  if (namespaces) return {};
  for (const auto& [capability, name] : kForItsFolder) {
    if (lacks(capability)) return name;
  }
  return {};
}

std::string forbids_namespaces() {
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
    const std::string setting = "max_" + std::string(kind) + "_namespaces";
    std::ifstream file("/proc/sys/user/" + setting);
    std::int64_t most = 0;
    if (file >> most && most == 0) return "user." + setting;
  }
  return {};
}

namespace {

using End = SandboxResult::End;

[[noreturn]] void sandbox_failed(const std::string& what, int error) {
  throw std::runtime_error(fmt::format("sandbox: {}: {}", what, std::strerror(error)));
}

/// Returns a descriptor above 2, so that making it a standard stream of the child never closes one that is still
/// needed.
UniqueFd above_standard(int fd) {
  UniqueFd given(fd);
  if (!given) sandbox_failed("cannot open a file descriptor", errno);
  if (fd > 2) return given;
  UniqueFd moved(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!moved) sandbox_failed("cannot duplicate a file descriptor", errno);
  return moved;
}

/// Returns an anonymous file that holds the input and cannot be changed, so that the host need not feed a pipe that
/// could break. Throws if the input exceeds the host's own limit of a file, since a signal would then end the host.
UniqueFd input_file(const std::string& input) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < input.size())
    sandbox_failed("cannot write the input", EFBIG);
  UniqueFd file = above_standard(memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (std::size_t done = 0; done < input.size();) {
    const ssize_t wrote = write(file.get(), input.data() + done, input.size() - done);
    if (wrote < 0 && errno != EINTR) sandbox_failed("cannot write the input", errno);
    done += static_cast<std::size_t>(std::max<ssize_t>(wrote, 0));
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) sandbox_failed("cannot rewind the input", errno);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    sandbox_failed("cannot seal the input", errno);
  }
  return file;
}

/// Returns what the process has exceeded, or an empty text.
std::string excess(const SandboxPlan& plan, const SandboxUsage& usage, bool counts_threads, bool counts_files,
                   const KeptOutput& output) {
  if (counts_threads && usage.threads() > SandboxBounds::kThreads) {
    return fmt::format("more than {} threads", SandboxBounds::kThreads);
  }
  if (!counts_files) return {};
  if (usage.written_bytes() > SandboxBounds::kWrittenBytes + output.total()) {
    return fmt::format("more than {} MiB written", SandboxBounds::kWrittenBytes >> 20);
  }
  return plan.folder().exceeds(SandboxBounds::kEntries, SandboxBounds::kWrittenBytes);
}

/// Runs the process in the given layers. Without a command, it only tries them.
SandboxResult run_in(const SandboxMeans& means, const std::vector<sock_filter>& filter, const SandboxRequest& request) {
  SandboxPlan plan(means, filter, request);
  SandboxChild& child = plan.child();
  const UniqueFd input = input_file(request.input);
  int pipe_ends[2] = {-1, -1};
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) sandbox_failed("cannot make a pipe", errno);
  const UniqueFd stream(pipe_ends[0]);
  UniqueFd child_output = above_standard(pipe_ends[1]);
  if (fcntl(stream.get(), F_SETFL, O_NONBLOCK) != 0) sandbox_failed("cannot set up a pipe", errno);
  child.input = input.get();
  child.output = child_output.get();

  SandboxProcess process(child, plan.namespaces());
  child_output.reset();
  KeptOutput output(request.output_bytes);
  const SandboxUsage usage(process.id(), child.user, child.group);
  SandboxResult result;
  std::function<bool()> exceeds;  // set only if the kernel does not count for this process by itself
  if (!means.namespaces || !child.counts_threads) {
    exceeds = [&] {
      result.exceeded = excess(plan, usage, !child.counts_threads, !means.namespaces, output);
      return !result.exceeded.empty();
    };
  }
  result.end = process.watch(stream.get(), output, request, exceeds);
  siginfo_t status{};
  const int problem = process.end(status);
  if (problem != 0 && problem != ECHILD) sandbox_failed("cannot end the process", problem);
  if (problem == 0 && result.end == End::exited) {
    result.code = status.si_status;
    if (status.si_code != CLD_EXITED) {
      result.end = End::signalled;
      result.signal = strsignal(result.code);
    }
  }
  result.output = std::move(output).text();
  return result;
}

/// True for a passing error, which says nothing about what the system allows.
bool is_transient(int error) {
  if (error == ENOSPC) return forbids_namespaces().empty();  // too many namespaces or mounts, or none allowed
  for (const int transient : {EAGAIN, ENOMEM, EMFILE, ENFILE, EINTR, EDQUOT, EBUSY}) {
    if (error == transient) return true;
  }
  return false;
}

/// The strongest layers in which a process can be started.
struct StrongestLayers {
  SandboxRights rights;  // rights of the thread that tried them
  SandboxMeans means;
  std::string without_namespaces, without_user;  // why the layers lack them
};

}  // namespace

struct Sandbox::Rules {
  SandboxLayers layers;
  std::vector<sock_filter> seccomp = make_seccomp_filter();
  std::mutex mutex;
  std::optional<StrongestLayers> found;

  /// Returns the strongest layers. Finds them at the first call, and again after the host's rights have changed. Throws
  /// std::runtime_error.
  StrongestLayers strongest() {
    const std::lock_guard lock(mutex);
    const SandboxRights rights = rights_of_thread();
    if (!found || !(found->rights == rights)) found = find(rights);
    return *found;
  }

  StrongestLayers find(const SandboxRights& rights) const {
    StrongestLayers strongest;
    strongest.rights = rights;
    if (!layers.namespaces) strongest.without_namespaces = "switched off";
    std::string problem;
    for (const bool namespaces : {true, false}) {
      for (const bool nobody : {true, false}) {
        if ((namespaces && !layers.namespaces) || (nobody && rights.user != 0)) continue;
        const std::string missing = nobody ? missing_for_other_user(rights, namespaces) : "";
        strongest.means = {namespaces, nobody, layers.landlock};
        problem = missing.empty() ? try_process(strongest.means) : "root lacks " + missing;
        if (problem.empty()) return strongest;
        (nobody ? strongest.without_user : strongest.without_namespaces) = problem;
      }
    }
    throw std::runtime_error("sandbox: no process can be confined here: " + problem);
  }

  /// Tries a process. Returns what does not work here, or an empty text. Throws if resources are missing, so that this
  /// is not taken for missing rights.
  std::string try_process(const SandboxMeans& means) const {
    try {
      const SandboxResult result = run_in(means, seccomp, {});
      if (result.end == End::exited && result.code == 0) return {};
      if (result.end == End::signalled && result.code == SIGSYS) return "a filter of system calls around this process";
    } catch (const SandboxNotStarted& error) {
      if (is_transient(error.code().value())) throw;
      return error.what();
    }
    throw std::runtime_error("sandbox: cannot find out which layers work here: the trial process was killed");
  }
};

std::string why_no_sandbox() { return {}; }

Sandbox::Sandbox(SandboxLayers layers) : rules_(std::make_unique<Rules>()) { rules_->layers = layers; }
Sandbox::~Sandbox() = default;

SandboxResult Sandbox::run(const SandboxRequest& request) const {
  if (rules_->seccomp.empty()) {
    throw std::runtime_error("sandbox: this system has no seccomp filters, and no code is run unconfined");
  }
  return run_in(rules_->strongest().means, rules_->seccomp, request);
}

std::vector<IsolationFact> Sandbox::isolation() const {
  const bool seccomp = !rules_->seccomp.empty();
  if (!seccomp) {
    return {{"system calls", false, "no seccomp filters in this kernel: tools that run code are refused"}};
  }
  const StrongestLayers strongest = rules_->strongest();
  const SandboxMeans& means = strongest.means;
  const int landlock = rules_->layers.landlock ? landlock_version() : 0;
  const std::string absent =
      rules_->layers.landlock ? "not in this kernel (5.13 or later), or disabled at its start" : "switched off";
  const bool files = landlock > 0 || means.namespaces;
  const std::string readable = means.nobody ? "what any user may read" : "what the user may read and write";
  std::vector<IsolationFact> facts{
      {"system calls", true, "seccomp: a list of allowed calls; no other processes, no sockets, no signals to others"},
      {"Landlock", landlock > 0,
       landlock > 0 ? fmt::format("version {}: reads the system and the interpreter, writes its own folder", landlock)
       : files      ? absent + "; the namespaces hide other files"
                    : absent + ", and no namespaces: code may use " + readable},
      {"namespaces", means.namespaces,
       means.namespaces ? "files, processes, network, IPC: a tree of its own, in which nothing else of the host exists"
                        : "not allowed here (" + strongest.without_namespaces +
                              "): code learns of files that exist, and its files and threads are counted from outside"},
  };
  if (strongest.rights.user == 0) {
    facts.push_back({"user", means.nobody,
                     means.nobody ? "not root: it runs as the user with the number 65534, without capabilities"
                                  : "root cannot change its user here (" + strongest.without_user +
                                        "): it runs as root, without capabilities"});
  }
  facts.push_back({"limits", true, "time, memory, file size, files, written bytes, open files, threads, output"});
  return facts;
}

}  // namespace baton
