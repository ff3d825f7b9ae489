// SPDX-License-Identifier: Apache-2.0
// GGUF files, versions 2 and 3: one file, or the parts NAME-00001-of-0000N.gguf, and what they say about their model in
// the terms of Hugging Face's config.json. Nothing is trusted: every count, length, type and offset is checked against
// the file before a byte is used. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/model.h"
#include "engine/model/weights.h"
#include "engine/tensor/block_types.h"
#include "engine/text/tokenizer.h"

namespace baton {

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
/// Bytes of a value of the type; 0 of texts and arrays, whose sizes vary.
std::size_t size_of(GgufType type);

struct GgufValue {
  GgufType type = GgufType::u8;
  std::uint64_t place = 0;           // byte of the file at which the value begins
  std::span<const std::byte> bytes;  // of a number, of a text, or of all elements of an array
  GgufType element = GgufType::u8;   // of an array
  std::uint64_t count = 0;           // of an array
};

/// Metadata under check. Every error is a ModelError with the file, the key, the byte at which its value begins, what
/// was found and what was expected. The file's bytes must outlive it.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  GgufMetadata(std::string origin, std::map<std::string, GgufValue, std::less<>> values)
      : origin_(std::move(origin)), values_(std::move(values)) {}

  const GgufValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const std::string& origin() const { return origin_; }
  std::vector<std::string> keys() const;

  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t low, std::int64_t high) const;
  double number(std::string_view key, double low, double high) const;
  double number_or(std::string_view key, double fallback, double low, double high) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view fallback) const;
  /// Elements of an array; views of the file's head.
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key, bool finite = true) const;
  std::vector<bool> flags(std::string_view key) const;

  /// Throws ModelError.
  [[noreturn]] void fail(std::string_view key, std::string_view expectation) const;

 private:
  const GgufValue& required(std::string_view key, std::string_view what) const;
  const GgufValue& array(std::string_view key, std::string_view what) const;

  std::string origin_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufTensor {
  std::uint32_t type_id = 0;        // as the file writes it
  std::optional<BlockType> type;    // empty: a type that the engine does not load
  std::vector<std::int64_t> shape;  // rows first, as in Hugging Face's files: the reverse of the file's order
  std::uint64_t begin = 0;          // byte of the file at which its data begins
  std::uint64_t bytes = 0;          // 0 when the type is unknown
};

/// One file, parsed.
struct GgufContents {
  std::uint32_t version = 0;
  std::uint32_t alignment = 0;
  std::uint64_t data_offset = 0;  // byte at which the tensors' data begins
  GgufMetadata metadata;
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Parses and checks all that comes before the tensors' data. `head` is the beginning of a file of `file_bytes` bytes
/// and must outlive the metadata; `origin` names the file in errors. Returns nothing when the tables reach beyond
/// `head`, within the file. Throws ModelError: not GGUF, another version, truncated, lying about counts or lengths,
/// duplicate names, tensors that overlap or reach outside. A type that the engine does not load is no error until the
/// tensor is asked for.
std::optional<GgufContents> parse_gguf(std::span<const std::byte> head, std::uint64_t file_bytes,
                                       const std::string& origin);

/// "Q4_K", or for what is not known its number.
std::string gguf_type_name(std::uint32_t id);

/// A file or the whole set that it is a part of. Safe from any thread.
class GgufFiles {
 public:
  explicit GgufFiles(const std::filesystem::path& path);
  ~GgufFiles();
  GgufFiles(const GgufFiles&) = delete;
  GgufFiles& operator=(const GgufFiles&) = delete;

  /// Of the first part, which has all of a set's.
  const GgufMetadata& metadata() const;
  /// nullptr: there is none.
  const GgufTensor* find(std::string_view name) const;
  /// The data of a tensor that is there, of a known type. Throws ModelError when the file cannot be read.
  std::shared_ptr<const std::byte[]> read(std::string_view name) const;
  /// Fills `out` with its bytes from `begin` on.
  void read(std::string_view name, std::uint64_t begin, std::span<std::byte> out) const;
  std::vector<std::string> tensor_names() const;
  std::size_t total_bytes() const;
  /// "model-00001-of-00003.gguf" and so on: all files.
  std::vector<std::filesystem::path> paths() const;
  /// See fingerprint_of; `settings` is what beside the files decides the numbers.
  std::string fingerprint(std::string_view settings, const std::stop_token& stop = {}) const;

 private:
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
};

/// The name of part `number` (from 1) of the set that a file name belongs to; empty: it is not a part of a set.
struct GgufPartName {
  std::string stem;  // before "-00001-of-00003.gguf"
  std::uint32_t number = 0;
  std::uint32_t count = 0;
  std::string of(std::uint32_t part) const;
};
std::optional<GgufPartName> gguf_part_name(std::string_view file_name);

/// The configuration; `changes` is laid over it as a JSON merge patch (null: nothing is changed), in the terms of
/// config.json. Throws ModelError for an architecture, a tensor or a setting that is not supported, by name.
ModelConfig gguf_config(const GgufFiles& files, const nlohmann::json& changes);

/// The architectures ("qwen2") that a file may name.
std::vector<std::string_view> gguf_architectures();

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
  std::int32_t further_streams_;  // behind the first one
};

// The tokenizer of a GGUF file, in the terms of Hugging Face's tokenizer.json.

/// The tokenizer that the tokenizer.json of the same model describes. Byte-level BPE ("gpt2", with its pre-tokenizer by
/// name) and SentencePiece BPE ("llama"). Throws ModelError for another model or pre-tokenizer, by name, and for
/// metadata that contradicts itself. `rule` takes the place of `tokenizer.ggml.pre`; empty: nothing does.
/// `doubt` is set to what speaks against the rule by which it cuts words, if there is something: the rule divides many
/// tokens of the vocabulary, which can never be made then, and another rule hardly any. Null: nobody wants to know.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufMetadata& metadata, const std::string& rule = "",
                                                std::string* doubt = nullptr);

/// The text of a token that the metadata names: "bos", "eos"; empty: it names none.
std::string gguf_special_text(const GgufMetadata& metadata, const std::string& which);

/// open_model_files of a GGUF file. Throws ModelError.
std::unique_ptr<ModelFiles> open_gguf_model(const std::filesystem::path& path);

}  // namespace baton
