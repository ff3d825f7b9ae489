// SPDX-License-Identifier: Apache-2.0
// All that a confined process reads before it is its program, and the folder that it gets.
#pragma once

#include <linux/filter.h>

#include <filesystem>
#include <string>
#include <vector>

#include "agents/sandbox.h"
#include "agents/sandbox_child.h"
#include "agents/sandbox_filter.h"
#include "agents/sandbox_folder.h"
#include "agents/sandbox_landlock.h"
#include "agents/sandbox_view.h"

namespace baton {

/// The optional layers of one process.
struct SandboxMeans {
  bool namespaces = false;
  bool nobody = false;  // becomes another user, which only root can
  bool landlock = false;
};

/// What a process may use in its folder, and how many threads.
struct SandboxBounds {
  static constexpr std::uint64_t kWrittenBytes = 64 << 20;
  static constexpr int kEntries = 4096;  // files and folders
  static constexpr int kThreads = 128;
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
  int namespaces() const { return namespaces_; }  // flags of clone
  const SandboxFolder& folder() const { return folder_; }

 private:
  void make_view(const SandboxMeans& means);
  void become_nobody(const SandboxMeans& means);
  void set_filters(const std::vector<sock_filter>& filter, bool shared_files);
  void set_program();

  SandboxFolder folder_;
  std::vector<std::filesystem::path> readable_;
  std::vector<SandboxChild::Limit> limits_;
  std::vector<std::string> command_, environment_;
  std::vector<char*> arguments_, variables_;
  std::string home_, user_map_, group_map_;
  SandboxView view_;
  std::vector<SandboxChild::Mount> mounts_;
  LandlockRules rules_;
  ExecKey exec_key_{};
  std::vector<sock_filter> process_filter_;
  int namespaces_ = 0;
  SandboxChild child_;
};

}  // namespace baton
