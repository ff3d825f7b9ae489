// SPDX-License-Identifier: Apache-2.0
// What a GGUF file says about its model, in the terms of Hugging Face's config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"
#include "engine/model/weights.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The configuration; `changes` is laid over it as a JSON merge patch (null: nothing is changed), in the terms of
/// config.json. Throws ModelError for an architecture, a tensor or a setting that is not supported, by name.
ModelConfig gguf_config(const GgufFiles& files, const nlohmann::json& changes);

/// Ids that end an answer: those that the file names, and control tokens of known texts. See end_tokens.
std::vector<std::int32_t> gguf_eos_tokens(const GgufMetadata& metadata);

/// The weights under the names of Hugging Face's checkpoints. `files` must outlive it.
class GgufWeights final : public WeightSource {
 public:
  GgufWeights(const GgufFiles& files, const ModelConfig& config);

  bool contains(const std::string& name) const override;
  StoredWeight weight(const std::string& name, std::int64_t rows, std::int64_t cols) const override;
  std::size_t total_bytes() const override { return files_.total_bytes(); }

 private:
  const GgufFiles& files_;
  std::int32_t head_dim_;
  std::int32_t experts_;
  bool interleaved_;  // queries and keys: files of the architectures "llama" and "smollm3"
  bool post_norms_;
};

// The tokenizer of a GGUF file, in the terms of Hugging Face's tokenizer.json.

/// The tokenizer that the tokenizer.json of the same model describes. Byte-level BPE ("gpt2", with its pre-tokenizer by
/// name) and SentencePiece BPE ("llama"). Throws ModelError for another model or pre-tokenizer, by name, and for
/// metadata that contradicts itself.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufMetadata& metadata);

/// The text of a token that the metadata names: "bos", "eos"; empty: it names none.
std::string gguf_special_text(const GgufMetadata& metadata, const std::string& which);

/// open_model_files of a GGUF file. Throws ModelError.
std::unique_ptr<ModelFiles> open_gguf_model(const std::filesystem::path& path);

}  // namespace baton
