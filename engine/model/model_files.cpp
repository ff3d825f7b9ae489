// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "engine/base/files.h"
#include "engine/base/json_fields.h"
#include "engine/model/checkpoint_weights.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_model.h"
#include "engine/model/safetensors.h"
#include "engine/model/sampler.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) { return InputFile(path).text(kMaxTextFile); }

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A special token is written as a text, or as an object whose "content" is the text.
std::string special_token(const JsonFields& fields, const std::string& key) {
  const Json* value = fields.find(key);
  if (value != nullptr && value->is_object()) {
    const auto content = value->find("content");
    if (content == value->end() || !content->is_string()) fields.fail(key, "without a text \"content\"");
    return content->get<std::string>();
  }
  return fields.text_or(key, "");
}

/// "chat_template" is the template, or a list of named ones of which "default" counts.
std::string configured_template(const JsonFields& fields) {
  const Json* value = fields.find("chat_template");
  if (value == nullptr || !value->is_array()) return fields.text_or("chat_template", "");
  for (const Json& entry : *value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") || !entry["template"].is_string())
      fields.fail("chat_template", "expected entries with a \"name\" and a \"template\"");
    if (entry["name"] == "default") return entry["template"].get<std::string>();
  }
  return "";
}

class Folder final : public ModelFiles {
 public:
  explicit Folder(const fs::path& path) : path_(path), config_(read_file(path / "config.json")) {}

  ModelConfig config() const override {
    ModelConfig config = parse_config(config_, (path_ / "config.json").string());
    const JsonDocument json = generation_json();
    if (json->is_null()) return config;
    const std::string origin = generation_path().string();
    std::vector<std::int32_t> ends = config.eos_tokens;
    const auto more = JsonFields(*json, origin).integers("eos_token_id", 0, config.vocabulary - 1);
    ends.insert(ends.end(), more.begin(), more.end());
    config.eos_tokens = end_tokens(ends, origin);
    return config;
  }

  GenerationDefaults generation() const override {
    const JsonDocument json = generation_json();
    GenerationDefaults defaults;
    if (json->is_null()) return defaults;
    const std::string origin = generation_path().string();
    const JsonFields fields(*json, origin);
    defaults.do_sample = fields.flag_or("do_sample", false);
    defaults.temperature = static_cast<float>(fields.number_or("temperature", 1.0, 0.0, 1e6));
    defaults.top_k = fields.integer_or("top_k", 0, 0, INT32_MAX);
    defaults.top_p = static_cast<float>(fields.number_or("top_p", 1.0, 0.0, 1.0));
    defaults.min_p = static_cast<float>(fields.number_or("min_p", 0.0, 0.0, 1.0));
    defaults.repetition_penalty = static_cast<float>(fields.number_or("repetition_penalty", 1.0, 0.0, 1e6));
    const std::string problem =
        SamplingParams{
            defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p, defaults.repetition_penalty, 0}
            .problem();
    if (!problem.empty()) throw ModelError(fmt::format("{}: {}", origin, problem));
    return defaults;
  }

  ModelText text() const override {
    ModelText text;
    text.tokenizer = Tokenizer::parse(read_file(tokenizer_file()), tokenizer_file());
    const fs::path path = path_ / "tokenizer_config.json";
    std::string origin = path.string(), source;
    if (is_there(path)) {
      const JsonDocument root = parse_json(read_file(path), origin);
      const JsonFields fields(*root, origin);
      text.chat_options.bos_token = special_token(fields, "bos_token");
      text.chat_options.eos_token = special_token(fields, "eos_token");
      source = configured_template(fields);
    }
    // Transformers lets the file win over the key.
    const fs::path file = path_ / "chat_template.jinja";
    if (is_there(file)) {
      source = read_file(file);
      origin = file.string();
    }
    if (!source.empty()) text.chat_template = ChatTemplate::parse(source, origin);
    return text;
  }

  std::string tokenizer_file() const override { return (path_ / "tokenizer.json").string(); }
  const WeightSource& weights() override {
    if (!weights_) weights_.emplace(files(), parse_config(config_, (path_ / "config.json").string()).quantization);
    return *weights_;
  }
  std::string fingerprint() override { return files().fingerprint(config_); }
  std::size_t bytes() override { return files().total_bytes(); }

 private:
  fs::path generation_path() const { return path_ / "generation_config.json"; }

  /// null: there is no such file.
  JsonDocument generation_json() const {
    if (!is_there(generation_path())) return {};
    JsonDocument json = parse_json(read_file(generation_path()), generation_path().string());
    if (json->is_null()) throw ModelError(fmt::format("{}: expected an object", generation_path().string()));
    return json;
  }

  const SafetensorsFolder& files() {
    if (!files_) files_.emplace(path_);
    return *files_;
  }

  fs::path path_;
  std::string config_;
  std::optional<SafetensorsFolder> files_;
  std::optional<CheckpointWeights> weights_;
};

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".gguf" && fs::is_regular_file(path, ignored);
}

}  // namespace

std::unique_ptr<ModelFiles> open_model_files(const fs::path& path) {
  if (is_gguf(path)) return open_gguf_model(path);
  if (std::error_code ignored; !fs::is_directory(path, ignored))
    throw ModelError(fmt::format("{}: neither a folder nor a .gguf file", path.string()));
  return std::make_unique<Folder>(path);
}

fs::path file_beside(const fs::path& model, const std::string& name) {
  if (model.extension() != ".gguf") return model / name;
  const auto part = gguf_part_name(model.filename().string());
  return model.parent_path() / fmt::format("{}.{}", part ? part->stem : model.stem().string(), name);
}

bool is_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path / "config.json", ignored)) return true;
  const auto part = gguf_part_name(path.filename().string());
  return is_gguf(path) && (!part || part->number == 1);
}

}  // namespace baton
