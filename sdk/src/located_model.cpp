// SPDX-License-Identifier: Apache-2.0
// Models of a workflow before their weights are read.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sdk/src/internal.h"
#include "sdk/src/model_path.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;
namespace {

std::string default_model(const WorkflowSpec& spec) {
  if (spec.defaults.model) return *spec.defaults.model;
  return spec.models.empty() ? std::string() : spec.models.front().name;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) throw ModelError(fmt::format("{}: cannot be read", path.string()));
  return std::move(text).str();
}

/// A special token is its text, or an object with the text as "content".
std::string special_token(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_object()) return found->value("content", "");
  return found->is_string() ? found->get<std::string>() : std::string();
}

std::string template_in(const nlohmann::json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  for (const auto& entry : *found) {
    if (entry.is_object() && entry.value("name", "") == "default") return entry.value("template", "");
  }
  return {};
}

}  // namespace

LocatedModel locate_model(const WorkflowSpec& spec, const std::string& name, const std::string& replacement) {
  const std::string standard = default_model(spec);
  LocatedModel located;
  for (const auto& model : spec.models) {
    if (model.name == (name.empty() ? standard : name)) located.spec = model;
  }
  if (!replacement.empty() && (name.empty() || name == standard)) {
    located.folder = find_model(replacement);
    return located;
  }
  if (located.spec.path.empty()) {
    throw ResourceError(ResourceError::Kind::model,
                        fmt::format("workflow '{}' names no model, and none was given", spec.name));
  }
  const fs::path file = located.spec.where.file.empty() ? spec.file : fs::path(located.spec.where.file);
  located.folder = find_model(located.spec.path, file.parent_path());
  return located;
}

std::shared_ptr<const Model> open_model_text(const LocatedModel& located) {
  return with_resource_errors([&]() -> std::shared_ptr<const Model> {
    const fs::path& folder = located.folder;
    const ModelConfig config = parse_config(read(folder / "config.json"), (folder / "config.json").string());
    ModelOptions options;
    options.dtype = located.spec.dtype;
    options.kv_dtype = located.spec.kv_dtype;
    options.context = located.spec.context > 0 ? located.spec.context : config.context;
    auto model = std::make_shared<Model>(Model{{.path = folder}, config, options, Rope(config), {}, {}});
    model->tokenizer = Tokenizer::parse(read(folder / "tokenizer.json"), (folder / "tokenizer.json").string());
    std::string source;
    if (fs::exists(folder / "tokenizer_config.json")) {
      const auto tokenizer = nlohmann::json::parse(read(folder / "tokenizer_config.json"), nullptr, false);
      if (!tokenizer.is_object())
        throw ModelError(fmt::format("{}: not a JSON object", (folder / "tokenizer_config.json").string()));
      model->chat_options.bos_token = special_token(tokenizer, "bos_token");
      model->chat_options.eos_token = special_token(tokenizer, "eos_token");
      source = template_in(tokenizer);
    }
    if (fs::exists(folder / "chat_template.jinja")) source = read(folder / "chat_template.jinja");
    if (!source.empty()) model->chat_template = ChatTemplate::parse(source, (folder / "chat template").string());
    return model;
  });
}

}  // namespace baton::inline v1
