// SPDX-License-Identifier: Apache-2.0
#include "agents/sandbox_rights.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace baton {

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

}  // namespace baton
