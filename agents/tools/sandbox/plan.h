// SPDX-License-Identifier: Apache-2.0
// SandboxPlan: prepares a sandbox before its process starts: its filters of system calls, and the files that it sees,
// by Landlock or a view. docs/decisions/tools.md
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "agents/tools/sandbox/folder.h"
#include "agents/tools/sandbox/process.h"
#include "agents/tools/sandbox/sandbox.h"
#include "engine/base/system/file.h"

namespace baton {

/// Returns the seccomp program; empty when the kernel has no seccomp filters. Calls that it does not allow fail with
/// EPERM. Calls that are newer than the list, or of another architecture, fail with ENOSYS, so that the C library falls
/// back. Throws std::runtime_error.
std::vector<sock_filter> make_seccomp_filter();

/// Random numbers that a process gives to its first execve, in the three registers that the call does not use. The
/// program does not have them: execve replaces the memory and clears the registers.
using ExecKey = std::array<std::uint64_t, 3>;

/// Throws std::system_error.
ExecKey make_exec_key();

/// Returns a second filter, for one process. It forbids execve without the key and, unless `shared_files`, mappings
/// that write through to their files.
std::vector<sock_filter> make_process_filter(const ExecKey& key, bool shared_files);

// SandboxPlan: prepares a sandbox before its process starts, with the files that it sees, by Landlock or a view.

// The Landlock rules of a confined process.

/// Returns the version of Landlock; 0: the kernel does not have it, or it is disabled.
int landlock_version();

struct LandlockRules {
  UniqueFd rules;                 // empty when landlock_version() is 0
  std::uint64_t folder_rights{};  // the rights of the process in its own folder, to which the process adds the rule
};

/// Returns rules by which files and folders in `readable` may be read and executed, and nothing else: no other files,
/// no TCP, no signals and no abstract sockets outside, as far as the kernel's version knows them. Paths that do not
/// exist or may not be read are left out. Throws std::runtime_error when the rules cannot be made.
LandlockRules make_landlock_rules(const std::vector<std::filesystem::path>& readable);

// The files that a confined process sees if it has a mount namespace of its own: a tree of nothing but read-only mounts
// of the paths that it may read, and an empty file system of limited size.

struct SandboxView {
  struct Mount {
    std::string source;
    std::string target;
    bool device = false;
  };

  std::string root;  // a folder of the host with empty files and folders as mount points
  std::vector<Mount> mounts;
  std::string folder;          // where the limited file system is mounted
  std::string folder_options;  // its limits and its owner

  /// Where the process sees that file system.
  static constexpr const char* kFolder = "/sandbox";
};

/// Makes the tree in `root`, an empty folder. Each path of `readable` that exists is seen under its own name.
/// `program` is what the process finds as /proc/self/exe, by which the dynamic loader finds libraries next to it.
/// Throws std::filesystem::filesystem_error.
SandboxView make_sandbox_view(const std::filesystem::path& root, std::vector<std::filesystem::path> readable,
                              const std::filesystem::path& program);

// All that a confined process reads before it is its program, and the folder that it gets.

/// The optional layers of one process.
struct SandboxMeans {
  bool namespaces = false;
  bool nobody = false;  // the process becomes another user; only root can do that
  bool landlock = false;
};

/// The limits of a process's folder and threads.
struct SandboxBounds {
  static constexpr std::uint64_t kWrittenBytes = 64 << 20;
  static constexpr int kEntries = 4096;  // files and folders
  static constexpr int kThreads = 128;
};

// Each part of a plan owns texts and lists that a SandboxChild points to, so none of them moves.

/// The program, its arguments and its environment.
class SandboxProgram {
 public:
  /// `home`: the folder that the process begins in and has as its home.
  SandboxProgram(std::vector<std::string> command, std::string home);
  SandboxProgram(const SandboxProgram&) = delete;
  SandboxProgram& operator=(const SandboxProgram&) = delete;

  void describe(SandboxChild& child) const;

 private:
  std::vector<std::string> command_;
  std::string home_;
  std::vector<std::string> environment_;
  std::vector<char*> arguments_, variables_;
};

/// The filters of system calls.
class SandboxFilters {
 public:
  /// `shared` outlives the object. `shared_files`: files may be mapped so that writes reach them.
  SandboxFilters(const std::vector<sock_filter>& shared, bool shared_files);
  SandboxFilters(const SandboxFilters&) = delete;
  SandboxFilters& operator=(const SandboxFilters&) = delete;

  void describe(SandboxChild& child) const;

 private:
  const std::vector<sock_filter>& shared_;
  ExecKey exec_key_{};
  std::vector<sock_filter> own_;
};

/// The namespaces, with what the process sees and is in them.
class SandboxNamespaces {
 public:
  /// Without `means.namespaces` there are none. Makes the tree of a SandboxView in `folder`.
  SandboxNamespaces(const SandboxMeans& means, const std::filesystem::path& folder, const SandboxRequest& request,
                    const std::vector<std::filesystem::path>& readable);
  SandboxNamespaces(const SandboxNamespaces&) = delete;
  SandboxNamespaces& operator=(const SandboxNamespaces&) = delete;

  int flags() const { return flags_; }  // flags of clone
  void describe(SandboxChild& child, const SandboxMeans& means) const;

 private:
  SandboxView view_;
  std::vector<SandboxChild::Mount> mounts_;
  std::string user_map_, group_map_;
  int flags_ = 0;
};

/// The child's data, made in advance, and what it points to.
class SandboxPlan {
 public:
  /// `filter` and `request` must outlive the plan. Throws SandboxNotStarted when the process's folder cannot be given
  /// to the other user, std::runtime_error when something else cannot be prepared.
  SandboxPlan(const SandboxMeans& means, const std::vector<sock_filter>& filter, const SandboxRequest& request);
  SandboxPlan(const SandboxPlan&) = delete;
  SandboxPlan& operator=(const SandboxPlan&) = delete;

  SandboxChild& child() { return child_; }
  int namespaces() const { return namespaces_.flags(); }  // flags of clone
  const SandboxFolder& folder() const { return folder_; }

 private:
  void become_nobody(const SandboxMeans& means);

  SandboxFolder folder_;
  std::vector<std::filesystem::path> readable_;
  std::vector<SandboxChild::Limit> limits_;
  SandboxFilters filters_;
  SandboxNamespaces namespaces_;
  SandboxProgram program_;
  LandlockRules rules_;
  SandboxChild child_;
};

}  // namespace baton
