// SPDX-License-Identifier: Apache-2.0
// Models of a workflow before their weights are read.
#include <fmt/format.h>

#include "sdk/src/internal.h"
#include "sdk/src/model_path.h"

namespace baton::inline v1 {
namespace fs = std::filesystem;
namespace {

std::string default_model(const WorkflowSpec& spec) {
  if (spec.defaults.model) return *spec.defaults.model;
  return spec.models.empty() ? std::string() : spec.models.front().name;
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
                        fmt::format("workflow '{}' names no model, and no other model was given", spec.name));
  }
  const fs::path file = located.spec.where.file.empty() ? spec.file : fs::path(located.spec.where.file);
  located.folder = find_model(located.spec.path, file.parent_path());
  return located;
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
