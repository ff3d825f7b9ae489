// SPDX-License-Identifier: Apache-2.0
// Which files of a repository are a model, chosen by a file's name or a quantisation. The same rules choose what
// `baton pull` downloads and what is found in the cache afterwards.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace baton {

struct HubFile {
  std::string name;         // path in the repository
  std::int64_t bytes = -1;  // -1: unknown
};

struct ModelChoice {
  std::vector<std::size_t> files;  // indices into the list that was chosen from
  std::string gguf;                // name of the GGUF file (of a split one, its first part); empty: a model folder
};

/// No file, or more than one model, is meant. The message lists the models that are there, with their sizes.
class ChoiceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// With a choice: the GGUF file of that name (path or file name, with or without .gguf; of a split file any part or the
/// name without a part), or the one whose name has the quantisation as a word (Q4_K_M, in any case;
/// "model-Q4_K_M.gguf", "model.q4_k_m.gguf"). "safetensors" is the folder of config.json. Without one: that folder,
/// where it has weights, else the only GGUF file. All parts of split files, in order. Throws ChoiceError, whose message
/// calls the repository `origin`.
ModelChoice choose_model(const std::vector<HubFile>& files, const std::string& choice, const std::string& origin);

/// "4.4 GiB"; "size unknown" for a negative number.
std::string size_text(std::int64_t bytes);

}  // namespace baton
