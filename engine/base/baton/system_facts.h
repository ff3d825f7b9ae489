// SPDX-License-Identifier: Apache-2.0
// What baton/system.h tells of the sandbox and of the models that can be run.
#pragma once

#include <string>
#include <vector>

namespace baton::inline v1 {

/// One layer of the sandbox on this machine.
struct IsolationFact {
  std::string layer;  // "system calls", "Landlock", "namespaces", "user", "limits"
  bool in_force = false;
  std::string text;  // what the layer does here, or why it does not hold and what follows
};

/// A family of models that can be run.
struct ModelFamily {
  std::string name;                        // "Qwen2, Qwen2.5"
  std::vector<std::string> classes;        // "architectures" in the config.json of a Hugging Face folder
  std::vector<std::string> architectures;  // "general.architecture" in a GGUF file
  std::string layers;                      // "attention, some layers within a window; experts"
  std::vector<std::string> proofs;         // what its results were compared with
};

}  // namespace baton::inline v1
