// SPDX-License-Identifier: Apache-2.0
#include "engine/model/gguf_model.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "engine/base/input_file.h"
#include "engine/base/json_fields.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_config.h"
#include "engine/model/gguf_tokenizer.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// The text of a file beside the model; empty: there is none.
std::optional<std::string> text_of(const fs::path& file) {
  if (std::error_code ignored; !fs::exists(file, ignored)) return std::nullopt;
  return InputFile(file).text(kMaxTextFile);
}

class GgufModel final : public ModelFiles {
 public:
  explicit GgufModel(const fs::path& path)
      : files_(path),
        changes_file_(file_beside(path, "config.json")),
        tokenizer_file_(file_beside(path, "tokenizer.json")),
        changes_(text_of(changes_file_)),
        tokenizer_(text_of(tokenizer_file_)) {}

  ModelConfig config() const override {
    JsonDocument changes;
    if (changes_) {
      changes = parse_json(*changes_, changes_file_.string());
      if (!changes->is_object()) throw ModelError(fmt::format("{}: expected an object", changes_file_.string()));
    }
    return gguf_config(files_, *changes);
  }

  GenerationDefaults generation() const override { return {}; }  // the format has none

  ModelText text() const override {
    const GgufMetadata& metadata = files_.metadata();
    ModelText text;
    text.tokenizer = tokenizer_ ? Tokenizer::parse(*tokenizer_, tokenizer_file()) : gguf_tokenizer(metadata);
    text.chat_options.bos_token = gguf_special_text(metadata, "bos");
    text.chat_options.eos_token = gguf_special_text(metadata, "eos");
    if (const std::string source = metadata.text_or("tokenizer.chat_template", ""); !source.empty())
      text.chat_template = ChatTemplate::parse(source, metadata.origin() + ": tokenizer.chat_template");
    return text;
  }

  std::string tokenizer_file() const override {
    return tokenizer_ ? tokenizer_file_.string() : files_.metadata().origin();
  }

  const WeightSource& weights() override {
    if (!weights_) weights_ = std::make_unique<GgufWeights>(files_, config());
    return *weights_;
  }

  std::string fingerprint() override { return files_.fingerprint(changes_.value_or("")); }
  std::size_t bytes() override { return files_.total_bytes(); }

 private:
  GgufFiles files_;
  fs::path changes_file_, tokenizer_file_;
  std::optional<std::string> changes_, tokenizer_;
  std::unique_ptr<GgufWeights> weights_;
};

}  // namespace

std::unique_ptr<ModelFiles> open_gguf_model(const fs::path& path) { return std::make_unique<GgufModel>(path); }

}  // namespace baton
