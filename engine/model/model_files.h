// SPDX-License-Identifier: Apache-2.0
// The files of a model, a Hugging Face folder or a GGUF file, behind one face: a model is the same whichever it is.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/model/config.h"
#include "engine/model/weight_source.h"
#include "engine/text/model_text.h"

namespace baton {

/// Sampling defaults of generation_config.json, where it has any; temperature 0 means greedy.
struct GenerationDefaults {
  bool do_sample = false;
  float temperature = 1.0f;
  std::int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

/// Every member throws ModelError with the file and what was expected. One thread at a time, but text() may run while
/// another thread reads weights.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;

  virtual ModelConfig config() const = 0;
  virtual GenerationDefaults generation() const = 0;
  virtual ModelText text() const = 0;              // without path and fingerprint
  virtual std::string tokenizer_file() const = 0;  // where the tokenizer is, for errors
  /// Opened when first asked for; valid while this object is.
  virtual const WeightSource& weights() = 0;
  /// The same for the same model.
  virtual std::string fingerprint() = 0;
  virtual std::size_t bytes() = 0;  // of the weights' files
};

/// A folder, or a file whose name ends in .gguf (of a split one, any part). A GGUF file may have two files beside it,
/// named after it: NAME.config.json, a JSON merge patch over what its metadata says in the terms of config.json, and
/// NAME.tokenizer.json, which takes the place of its tokenizer. Throws ModelError: neither a folder nor such a file.
std::unique_ptr<ModelFiles> open_model_files(const std::filesystem::path& path);

/// Whether a model may be there: a folder that holds config.json, or a GGUF file (of a split one, the first part).
bool is_model(const std::filesystem::path& path);

/// Where a file that belongs to a model goes: into its folder, or beside a GGUF file under a name that begins as its
/// own does, "model.gguf" -> "model.baton.profile.json"; of a split one without the part's number.
std::filesystem::path file_beside(const std::filesystem::path& model, const std::string& name);

}  // namespace baton
