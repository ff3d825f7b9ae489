// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/model_path.h"

#include <fmt/format.h>

#include <cstdlib>

#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "engine/model/model.h"
#include "engine/remote/open_server.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/src/internal.h"
#include "workflows/format/diagnostics.h"

#include <baton/errors.h>
#include <baton/system.h>

namespace baton::inline v1 {
namespace fs = std::filesystem;
namespace {

/// A published model in the cache; empty: `model` is a path or a bare name.
fs::path pulled(const std::string& model) {
  try {
    const auto source = parse_model_source(model);
    return source ? find_pulled(*source) : fs::path();
  } catch (const ModelError& error) {
    throw ResourceError(ResourceError::Kind::model, error.what());
  }
}

std::vector<fs::path> models_in(const fs::path& folder) { return entries_where(folder, is_model); }

/// Lines that name what may have been meant by a model that is not there: those in the folder that was given, one with
/// the ending .gguf, or the closest name.
std::string hint_at_model(const std::string& model, const std::vector<fs::path>& tried, bool bare) {
  constexpr std::size_t kMaxShown = 8;
  std::error_code error;
  const fs::path& given = tried.front();
  if (fs::is_directory(given, error)) {
    const std::vector<fs::path> inside = models_in(given);
    if (inside.empty()) return "\nIt is a folder without a model in it.";
    std::string text = "\nIt is a folder of models; give one of them:";
    for (std::size_t i = 0; i < inside.size() && i < kMaxShown; ++i) text += "\n  " + inside[i].string();
    return inside.size() > kMaxShown ? text + fmt::format("\n  and {} more", inside.size() - kMaxShown) : text;
  }
  if (fs::is_regular_file(given, error)) return "\nIt is a file whose name does not end with .gguf.";
  fs::path with_ending = given;
  with_ending += ".gguf";
  if (is_model(with_ending)) return fmt::format("\nDid you mean '{}.gguf'?", model);
  std::vector<std::string> names;
  std::vector<fs::path> folders = bare ? model_search_path() : std::vector<fs::path>();
  folders.push_back(given.has_parent_path() ? given.parent_path() : fs::path("."));
  for (const fs::path& folder : folders) {
    for (const fs::path& one : models_in(folder)) names.push_back(one.filename().string());
  }
  const std::string near = closest(given.filename().string(), names);
  if (near.empty()) return {};
  return fmt::format("\nDid you mean '{}'?", bare ? near : (fs::path(model).parent_path() / near).string());
}

}  // namespace

std::vector<fs::path> model_search_path() {
  std::vector<fs::path> folders;
  if (const char* variable = std::getenv("BATON_MODEL_PATH")) {
    for (const std::string& folder : folders_of_list(variable)) folders.push_back(home_expanded(folder));
  }
  std::error_code error;
  if (const fs::path program = own_program(); !program.empty()) {
    // A program in a source tree's build/<preset>/bin.
    const fs::path tree = (program.parent_path() / "../../../samples/models").lexically_normal();
    if (fs::is_directory(tree, error)) folders.push_back(tree);
  }
  for (const fs::path& share : share_folders()) folders.push_back(share / "models");
  return folders;
}

fs::path find_model(const std::string& model, const fs::path& base) {
  using Kind = ResourceError::Kind;
  if (model.empty()) throw ResourceError(Kind::model, "no model is given");
  if (fs::path published = pulled(model); !published.empty()) return published;
  const bool bare = model.find('/') == std::string::npos;
  std::vector<fs::path> tried = {
      (base / home_expanded(model)).lexically_normal()};  // an absolute path stands for itself
  if (bare) {
    for (const auto& folder : model_search_path()) {
      tried.push_back(folder / model);
      if (!model.ends_with(".gguf")) tried.push_back(folder / (model + ".gguf"));
    }
  }
  for (const auto& folder : tried) {
    if (is_model(folder)) return folder;
  }
  std::string text =
      fmt::format("model '{}' was not found; looked for a .gguf file, or for a folder with config.json, at:", model);
  for (const auto& folder : tried) text += fmt::format("\n  {}", folder.string());
  text += hint_at_model(model, tried, bare);
  if (bare) text += "\nAdd the folder it is in to BATON_MODEL_PATH, or give a path.";
  throw ResourceError(Kind::model, text);
}

fs::path find_model(const std::string& model) { return find_model(model, {}); }

// Models of a workflow before their weights are read.

namespace {

std::string default_model(const WorkflowSpec& spec) {
  if (spec.defaults.model) return *spec.defaults.model;
  return spec.models.empty() ? std::string() : spec.models.front().name;
}

/// The key of a server; ${secret:NAME} is the value of a variable.
std::string resolved_key(const ModelSpec& model) {
  constexpr std::string_view kSecret = "${secret:";
  const std::string& key = model.key;
  if (!key.starts_with(kSecret) || !key.ends_with('}')) return key;
  const std::string name = key.substr(kSecret.size(), key.size() - kSecret.size() - 1);
  std::string value = environment(name.c_str());
  if (value.empty())
    throw ResourceError(ResourceError::Kind::model,
                        fmt::format("model '{}': the environment variable '{}' with the key of its server is not set",
                                    model.name, name));
  return value;
}

}  // namespace

LocatedModel locate_model(const WorkflowSpec& spec, const std::string& name, const std::string& replacement) {
  const std::string standard = default_model(spec);
  LocatedModel located;
  for (const auto& model : spec.models) {
    if (model.name == (name.empty() ? standard : name)) located.spec = model;
  }
  const fs::path file = located.spec.where.file.empty() ? spec.file : fs::path(located.spec.where.file);
  if (located.spec.served()) {
    if (!replacement.empty() && (name.empty() || name == standard))
      throw ResourceError(
          ResourceError::Kind::model,
          fmt::format("model '{}' is on a server, so that '{}' cannot take its place", located.spec.name, replacement));
    if (!located.spec.tokenizer.empty()) located.folder = find_model(located.spec.tokenizer, file.parent_path());
    return located;
  }
  if (!replacement.empty() && (name.empty() || name == standard)) {
    located.folder = find_model(replacement);
    return located;
  }
  if (located.spec.path.empty()) {
    throw ResourceError(ResourceError::Kind::model,
                        fmt::format("workflow '{}' names no model, and no other model was given", spec.name));
  }
  located.folder = find_model(located.spec.path, file.parent_path());
  return located;
}

std::shared_ptr<InferenceEngine> open_served_model(const LocatedModel& located, double slowdown,
                                                   const std::stop_token& stop) {
  ServerModel model;
  model.address = {located.spec.endpoint, resolved_key(located.spec)};
  model.model = located.spec.model;
  model.api = located.spec.api;
  model.context = located.spec.context;
  model.slowdown = slowdown;
  if (located.spec.patience) model.patience = std::chrono::duration<double>(*located.spec.patience).count();
  if (!located.folder.empty()) model.text = open_model_text(located);
  return with_resource_errors([&] { return open_server(model, stop); });
}

std::shared_ptr<InferenceEngine> ServedModels::open(const LocatedModel& located, double slowdown,
                                                    const std::function<void(const std::string&)>& warn,
                                                    const std::stop_token& stop) {
  const ModelSpec& spec = located.spec;
  const std::string name =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", spec.endpoint, spec.model, spec.api, located.folder.string(), spec.key,
                  spec.context, spec.patience.value_or(Milliseconds(-1)).count());
  const std::lock_guard lock(mutex_);
  std::shared_ptr<InferenceEngine>& engine = opened_[name];
  if (engine) return engine;
  engine = open_served_model(located, slowdown, stop);
  for (const std::string& doubt : engine->text().warnings) warn(doubt);
  return engine;
}

std::shared_ptr<const Model> open_model_text(const LocatedModel& located) {
  return with_resource_errors([&]() -> std::shared_ptr<const Model> {
    ModelOptions options;
    options.dtype = located.spec.dtype;
    options.kv_dtype = located.spec.kv_dtype;
    options.activations = located.spec.activations;
    options.context = located.spec.context;
    return std::make_shared<Model>(describe_model(*open_model_files(located.folder), located.folder, options));
  });
}

}  // namespace baton::inline v1
