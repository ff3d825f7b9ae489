// SPDX-License-Identifier: Apache-2.0
// Models of a workflow before their weights are read.
#include <fmt/format.h>

#include "engine/remote/open_server.h"  // of the layers below: before any public header
#include "sdk/src/internal.h"

#include "sdk/hub/hub_cache.h"
#include "sdk/src/model_path.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;
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
  if (!located.folder.empty()) model.text = open_model_text(located);
  return with_resource_errors([&] { return open_server(model, stop); });
}

std::shared_ptr<InferenceEngine> ServedModels::open(const LocatedModel& located, double slowdown,
                                                    const std::stop_token& stop) {
  const ModelSpec& spec = located.spec;
  const std::string name = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", spec.endpoint, spec.model, spec.api,
                                       located.folder.string(), spec.key, spec.context);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<InferenceEngine>& engine = opened_[name];
  if (!engine) engine = open_served_model(located, slowdown, stop);
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
