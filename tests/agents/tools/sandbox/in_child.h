// SPDX-License-Identifier: Apache-2.0
// Checks in a copy of this process that has given up rights, which cannot be taken back.
#pragma once

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace baton {

/// Calls a function in a copy of this process and returns its text. An exception counts as a text, as does an end by a
/// signal.
inline std::string in_child(const std::function<std::string()>& function) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    std::string text;
    try {
      text = function();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(bytes));
  }
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 ? text : text + "\nthe copy of the process ended with status " + std::to_string(status);
}

/// Makes this process that of the user nobody.
inline bool become_nobody() {
  if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) return false;
  prctl(PR_SET_DUMPABLE, 1);  // as in a process that nobody started
  return true;
}

inline std::string as_nobody(const std::function<std::string()>& function) {
  return in_child([&] { return become_nobody() ? function() : std::string("not nobody"); });
}

inline bool write_to(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

/// Makes this process the only user of a new user namespace, root there, with all capabilities.
inline bool become_root_of_own_namespace() {
  const std::string map = "0 " + std::to_string(geteuid()) + " 1";
  const std::string groups = "0 " + std::to_string(getegid()) + " 1";
  return unshare(CLONE_NEWUSER) == 0 && write_to("/proc/self/setgroups", "deny") &&
         write_to("/proc/self/uid_map", map) && write_to("/proc/self/gid_map", groups);
}

/// Takes a capability from this thread.
inline bool drop_capability(int capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, &sets) != 0) return false;
  sets[capability / 32].effective &= ~(std::uint32_t{1} << capability % 32);
  sets[capability / 32].permitted &= ~(std::uint32_t{1} << capability % 32);
  return syscall(SYS_capset, &header, &sets) == 0;
}

}  // namespace baton
