// SPDX-License-Identifier: Apache-2.0
// The layers that confine the code that a tool runs.
#pragma once

#include <string>

namespace baton::inline v1 {

/// One layer of the sandbox on this machine.
struct IsolationFact {
  std::string layer;  // "system calls", "Landlock", "namespaces", "user", "limits"
  bool in_force = false;
  std::string text;  // what the layer does here, or why it does not hold and what follows
};

}  // namespace baton::inline v1
