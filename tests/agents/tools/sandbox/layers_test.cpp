// SPDX-License-Identifier: Apache-2.0
// The layers of the sandbox one by one: each is in force where this machine allows it, which is found out without the
// code under test, and the filter of system calls denies by itself what other layers and missing rights would deny.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "agents/tools/sandbox/plan.h"
#include "agents/tools/sandbox/sandbox.h"
#include "tests/agents/tools/sandbox/in_child.h"

namespace sandbox_layers_test {

using namespace baton;
namespace fs = std::filesystem;

namespace {

std::string status_line(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  }
  return {};
}

bool has_capabilities(std::initializer_list<int> wanted) {
  const std::uint64_t set = std::stoull(status_line("CapEff"), nullptr, 16);
  return std::all_of(wanted.begin(), wanted.end(), [&](int capability) { return (set >> capability & 1) != 0; });
}

/// Each returns why this machine does not allow the layer to this user, or an empty text.

std::string forbids_filters() {
  return in_child([]() -> std::string {
    const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog program{1, const_cast<sock_filter*>(&allow)};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 ? "" : std::strerror(errno);
  });
}

std::string forbids_landlock() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? "" : std::strerror(errno);
}

std::string forbids_own_namespaces() {
  return in_child([]() -> std::string {
    const auto failed = [](const char* what) { return fmt::format("{}: {}", what, std::strerror(errno)); };
    if (geteuid() != 0 && !become_root_of_own_namespace()) return failed("user namespace");
    if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) != 0)
      return failed("namespaces");
    const std::string folder = fs::temp_directory_path().string();
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed("private mounts");
    if (mount("tmpfs", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=65536") != 0) return failed("tmpfs");
    if (mkdir((folder + "/usr").c_str(), 0755) != 0) return failed("folder");
    if (mount("/usr", (folder + "/usr").c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) return failed("mount");
    // The kernel's mount_attr, whose header some C libraries' <sys/mount.h> does not go with.
    const struct {
      std::uint64_t set = 1, clear = 0, propagation = 0, user_namespace = 0;  // 1: read-only
    } change;
    constexpr unsigned kRecursive = 0x8000;
    if (syscall(SYS_mount_setattr, AT_FDCWD, (folder + "/usr").c_str(), kRecursive, &change, sizeof(change)) != 0)
      return failed("read-only mounts");
    return {};
  });
}

std::string forbids_other_user() {
  if (geteuid() != 0) return "this user is not root";
  if (!has_capabilities({CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL})) return "a capability is missing";
  return as_nobody([] { return std::string(); });
}

/// Returns the layers that this machine allows and that are not in force, or an empty text.
std::string missing_layers(SandboxLayers layers) {
  std::string missing;
  const auto facts = Sandbox(layers).isolation();
  const auto require = [&](const std::string& layer, bool wanted) {
    const auto fact =
        std::find_if(facts.begin(), facts.end(), [&](const IsolationFact& one) { return one.layer == layer; });
    if (fact == facts.end() ? wanted : fact->in_force != wanted)
      missing += fmt::format("{}: expected {}: {}\n", layer, wanted, fact == facts.end() ? "absent" : fact->text);
  };
  require("system calls", forbids_filters().empty());
  require("Landlock", layers.landlock && forbids_landlock().empty());
  require("namespaces", layers.namespaces && forbids_own_namespaces().empty());
  require("user", forbids_other_user().empty());
  require("limits", true);
  return missing;
}

struct Call {
  std::string name;
  std::function<long()> make;
};

/// Calls on sockets that were made before the filter, with which they succeed or fail for another reason than EPERM.
std::vector<Call> socket_calls() {
  int streams[2], datagrams[2];
  const int udp = socket(AF_INET, SOCK_DGRAM, 0), mailbox = socket(AF_UNIX, SOCK_DGRAM, 0);
  const int unbound = socket(AF_UNIX, SOCK_STREAM, 0), listening = socket(AF_UNIX, SOCK_STREAM, 0);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, streams) != 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) != 0)
    throw std::runtime_error("no sockets");
  const auto bytes_of = [](sockaddr_un& address, const std::string& name) {
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  };
  static sockaddr_un to{}, own{};  // static, as is what the calls below are given: it outlives this function
  static sockaddr_in port{};
  static msghdr message{};
  static mmsghdr several{};
  static iovec piece{};
  static char letter = 'x';
  static int value = 0;
  static sockaddr_storage name;
  static socklen_t bytes = sizeof(name), value_bytes = sizeof(value);
  const socklen_t to_bytes = bytes_of(to, fmt::format("baton-filter-{}", getpid()));
  const socklen_t own_bytes = bytes_of(own, fmt::format("baton-filter-own-{}", getpid()));
  port.sin_family = AF_INET;
  port.sin_port = htons(9);
  port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  piece = {&letter, 1};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  several.msg_hdr = message;
  const auto* const address = reinterpret_cast<const sockaddr*>(&to);
  const auto* const own_address = reinterpret_cast<const sockaddr*>(&own);
  const auto* const internet = reinterpret_cast<const sockaddr*>(&port);
  if (bind(mailbox, address, to_bytes) != 0) throw std::runtime_error("no mailbox");
  const int left = datagrams[0], stream = streams[0];
  return {{"connect datagrams", [=] { return connect(left, address, to_bytes); }},
          {"connect a stream", [=] { return connect(unbound, address, to_bytes); }},
          {"connect UDP", [=] { return connect(udp, internet, sizeof(port)); }},
          {"sendto from datagrams", [=] { return sendto(left, &letter, 1, MSG_DONTWAIT, address, to_bytes); }},
          {"sendto from UDP", [=] { return sendto(udp, &letter, 1, MSG_DONTWAIT, internet, sizeof(port)); }},
          {"sendto out of band", [=] { return send(stream, &letter, 1, MSG_OOB | MSG_DONTWAIT); }},
          {"recvfrom out of band", [=] { return recv(stream, &letter, 1, MSG_OOB | MSG_DONTWAIT); }},
          {"sendmsg", [=] { return sendmsg(stream, &message, MSG_DONTWAIT); }},
          {"recvmsg", [=] { return recvmsg(stream, &message, MSG_DONTWAIT); }},
          {"sendmmsg", [=] { return sendmmsg(stream, &several, 1, MSG_DONTWAIT); }},
          {"recvmmsg", [=] { return recvmmsg(stream, &several, 1, MSG_DONTWAIT, nullptr); }},
          {"bind", [=] { return bind(left, own_address, own_bytes); }},
          {"listen", [=] { return listen(listening, 1); }},
          {"accept", [=] { return accept(listening, nullptr, nullptr); }},
          {"accept4", [=] { return accept4(listening, nullptr, nullptr, 0); }},
          {"setsockopt", [=] { return setsockopt(stream, SOL_SOCKET, SO_PASSCRED, &value, sizeof(value)); }},
          {"getsockopt", [=] { return getsockopt(stream, SOL_SOCKET, SO_TYPE, &value, &value_bytes); }},
          {"getsockname", [=] { return getsockname(stream, reinterpret_cast<sockaddr*>(&name), &bytes); }},
          {"getpeername", [=] { return getpeername(stream, reinterpret_cast<sockaddr*>(&name), &bytes); }},
          {"socket", [] { return socket(AF_UNIX, SOCK_STREAM, 0); }},
          {"socketpair", [] {
             int pair[2];
             return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
           }}};
}

/// Calls that the kernel denies to a user without rights, with arguments that fail for root without an effect.
std::vector<Call> calls_of_root() {
  constexpr std::pair<const char*, long> kCalls[] = {{"mount", SYS_mount},
                                                     {"umount2", SYS_umount2},
                                                     {"pivot_root", SYS_pivot_root},
                                                     {"chroot", SYS_chroot},
                                                     {"fsopen", 430},
                                                     {"open_tree", 428},
                                                     {"move_mount", 429},
                                                     {"mount_setattr", 442},
                                                     {"bpf", SYS_bpf},
                                                     {"perf_event_open", SYS_perf_event_open},
                                                     {"open_by_handle_at", SYS_open_by_handle_at},
                                                     {"fanotify_init", SYS_fanotify_init},
                                                     {"mknodat", SYS_mknodat},
                                                     {"unshare", SYS_unshare},
                                                     {"setns", SYS_setns},
                                                     {"setuid", SYS_setuid},
                                                     {"setgid", SYS_setgid},
                                                     {"setgroups", SYS_setgroups},
                                                     {"sethostname", SYS_sethostname},
                                                     {"swapon", SYS_swapon},
                                                     {"ptrace", SYS_ptrace},
                                                     {"process_vm_readv", SYS_process_vm_readv},
                                                     {"process_vm_writev", SYS_process_vm_writev},
                                                     {"kcmp", SYS_kcmp},
                                                     {"pidfd_open", 434},
                                                     {"pidfd_getfd", 438},
                                                     {"pidfd_send_signal", 424}};
  std::vector<Call> calls;
  for (const auto& [name, number] : kCalls) {
    calls.push_back({name, [number = number] { return syscall(number, -1L, -1L, -1L, -1L, -1L, -1L); }});
  }
  return calls;
}

/// Makes the calls in a copy of this process and returns those that were allowed, or without the filter those that
/// were denied: EPERM is the filter's answer.
std::string wrong_calls(const std::function<std::vector<Call>()>& calls_of, bool filtered) {
  return in_child([&]() -> std::string {
    const std::vector<Call> calls = calls_of();
    if (filtered) {
      const std::vector<sock_filter> filter = make_seccomp_filter();
      const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) return "no filter";
    }
    std::string wrong;
    for (const Call& call : calls) {
      errno = 0;
      const bool denied = call.make() == -1 && errno == EPERM;
      if (denied != filtered) wrong += fmt::format("{}: {}\n", call.name, std::strerror(errno));
    }
    return wrong;
  });
}

#ifdef __SANITIZE_THREAD__
constexpr bool kOwnThread = true;  // the sanitizer's, which no new user namespace may have
#else
constexpr bool kOwnThread = false;
#endif

}  // namespace

TEST_CASE("sandbox: a layer is in force where this machine allows it") {
  for (const auto& [layer, reason] : {std::pair{"seccomp", forbids_filters()},
                                      {"Landlock", forbids_landlock()},
                                      {"namespaces", forbids_own_namespaces()},
                                      {"another user", forbids_other_user()}}) {
    if (!reason.empty()) WARN("not on this machine: " << layer << " (" << reason << ")");
  }
  for (const SandboxLayers layers : {SandboxLayers{true, true}, {false, true}, {true, false}, {false, false}}) {
    INFO("Landlock " << layers.landlock << ", namespaces " << layers.namespaces);
    CHECK(missing_layers(layers) == "");
    if (geteuid() == 0 && !kOwnThread) CHECK(as_nobody([&] { return missing_layers(layers); }) == "");
  }
}

TEST_CASE("sandbox: the filter alone keeps sockets from what is outside") {
  CHECK(wrong_calls(socket_calls, false) == "");
  CHECK(wrong_calls(socket_calls, true) == "");
}

TEST_CASE("sandbox: the filter alone denies what needs rights") {
  CHECK(wrong_calls(calls_of_root, true) == "");
  std::string map;
  std::getline(std::ifstream("/proc/self/uid_map"), map);
  const bool has_rights =
      map.find("4294967295") != std::string::npos && status_line("Seccomp") == "0" &&
      has_capabilities({CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_DAC_READ_SEARCH, CAP_SETUID, CAP_SETGID});
  if (!has_rights) {
    WARN("skipped: without the filter, this user lacks the rights for these calls anyway");
    return;
  }
  CHECK(wrong_calls(calls_of_root, false) == "");
}

}  // namespace sandbox_layers_test
