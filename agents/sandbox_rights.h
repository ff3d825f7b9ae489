// SPDX-License-Identifier: Apache-2.0
// What the host may do, on which the layers of a sandbox depend.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace baton {

/// The rights of one thread. A host may give them up while it runs.
struct SandboxRights {
  uid_t user = 0;                  // the effective one
  std::uint64_t capabilities = 0;  // effective; bit n is the capability n

  bool operator==(const SandboxRights&) const = default;
};

SandboxRights rights_of_thread();

/// Returns the name of a capability that root lacks to run a process as another user, or an empty text: to become that
/// user and to end its process, and without namespaces also to give it a folder, to count the files in it and to remove
/// them.
std::string missing_for_other_user(const SandboxRights& rights, bool namespaces);

/// Returns the name of a system setting by which no namespaces of some kind may be made here, or an empty text. Making
/// one then fails as it does when there are too many at the moment.
std::string forbids_namespaces();

}  // namespace baton
