// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/model_path.h"

#include <fmt/format.h>

#include <cstdlib>

#include <baton/errors.h>
#include <baton/system.h>

#include "engine/base/system/file.h"
#include "engine/base/system/process.h"
#include "engine/model/model.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/src/share_folders.h"
#include "workflows/format/diagnostics.h"

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

}  // namespace baton::inline v1
