// SPDX-License-Identifier: Apache-2.0
// A family of models that can be run.
#pragma once

#include <string>
#include <vector>

namespace baton::inline v1 {

struct ModelFamily {
  std::string name;                        // "Qwen2, Qwen2.5"
  std::vector<std::string> classes;        // "architectures" in the config.json of a Hugging Face folder
  std::vector<std::string> architectures;  // "general.architecture" in a GGUF file
  std::string layers;                      // "attention, some layers within a window; experts"
  std::vector<std::string> proofs;         // what its results were compared with
};

}  // namespace baton::inline v1
