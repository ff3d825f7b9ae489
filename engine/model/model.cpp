// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "engine/base/json_fields.h"
#include "engine/base/mapped_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/sampler.h"

namespace baton {
namespace {

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void read_generation_config(Model& model) {
  const std::filesystem::path path = model.path / "generation_config.json";
  const std::string origin = path.string();
  if (!is_there(path)) return;
  const Json root = parse_json(read_file(path), origin);
  const JsonFields fields(root, origin);

  GenerationDefaults& defaults = model.generation;
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

  std::vector<std::int32_t>& eos = model.config.eos_tokens;
  for (const std::int32_t token : fields.integers("eos_token_id", 0, model.config.vocabulary - 1))
    if (std::find(eos.begin(), eos.end(), token) == eos.end()) eos.push_back(token);
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

void read_chat_template(Model& model) {
  const std::filesystem::path path = model.path / "tokenizer_config.json";
  std::string origin = path.string(), source;
  if (is_there(path)) {
    const Json root = parse_json(read_file(path), origin);
    const JsonFields fields(root, origin);
    model.chat_options.bos_token = special_token(fields, "bos_token");
    model.chat_options.eos_token = special_token(fields, "eos_token");
    source = configured_template(fields);
  }
  // Transformers lets the file win over the key.
  const std::filesystem::path file = model.path / "chat_template.jinja";
  if (is_there(file)) {
    source = read_file(file);
    origin = file.string();
  }
  if (!source.empty()) model.chat_template = ChatTemplate::parse(source, origin);
}

void read_tokenizer(Model& model) {
  const std::filesystem::path path = model.path / "tokenizer.json";
  model.tokenizer = Tokenizer::parse(read_file(path), path.string());
  if (model.tokenizer->size() > model.config.vocabulary)
    throw ModelError(fmt::format("{}: has ids up to {}, but the model's vocabulary is {}", path.string(),
                                 model.tokenizer->size() - 1, model.config.vocabulary));
}

}  // namespace

std::shared_ptr<const Model> open_model(Backend& backend, const std::filesystem::path& folder,
                                        const ModelOptions& options) {
  if (std::error_code ignored; !std::filesystem::is_directory(folder, ignored))
    throw ModelError(fmt::format("{}: not a folder", folder.string()));
  if (options.dtype == DType::f16 || options.kv_dtype == DType::f16)
    throw ModelError("weights and KV cache are kept in bf16 or f32, not f16");

  const std::filesystem::path config_path = folder / "config.json";
  const std::string config_json = read_file(config_path);
  const ModelConfig config = parse_config(config_json, config_path.string());
  if (options.context < 0 || options.context > config.context)
    throw ModelError(fmt::format("{}: a context of {} tokens was asked for, the model's own is {}", folder.string(),
                                 options.context, config.context));

  // What is small is read first: a mistake shows before gigabytes are.
  auto model = std::make_shared<Model>(Model{folder, {}, config, options, Rope(config), {}, {}, nullptr, nullptr, {}});
  if (options.context == 0) model->options.context = config.context;
  read_generation_config(*model);
  read_tokenizer(*model);
  read_chat_template(*model);

  const SafetensorsFolder files(folder);
  model->fingerprint = files.fingerprint(config_json);
  model->weights = load_weights(backend, config, files, options.dtype, options.progress);
  return model;
}

}  // namespace baton
