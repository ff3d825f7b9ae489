// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/pulled_model.h"

#include <fmt/format.h>

#include <system_error>

#include "engine/base/errors.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"
#include "sdk/hub/hub_cache.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

fs::path find_pulled(const HubModel& model) {
  const HubCache cache;
  const std::string command = "run: baton pull " + model.text();
  const auto commit = cache.commit(model.repository, model.revision);
  const fs::path folder = cache.repository(model.repository);
  if (!commit)
    throw ModelError(
        fmt::format("model 'hf:{}' has not been pulled; looked in {}\n{}", model.text(), folder.string(), command));
  const fs::path snapshot = cache.snapshot(model.repository, *commit);
  const std::vector<HubFile> files = cache.files(model.repository, *commit);
  try {
    const ModelChoice chosen = choose_model(files, model.choice, model.repository);
    return chosen.gguf.empty() ? snapshot : snapshot / chosen.gguf;
  } catch (const ChoiceError& error) {
    throw ModelError(fmt::format("model 'hf:{}' is not among what has been pulled into {}\n{}\n{}", model.text(),
                                 snapshot.string(), error.what(), command));
  }
}

fs::path find_pulled(const UrlModel& model) {
  const fs::path file = url_file(model);
  const auto part = gguf_part_name(model.name);
  for (std::uint32_t number = 1; number <= (part ? part->count : 1); ++number) {
    const fs::path path = part ? file.parent_path() / part->of(number) : file;
    if (std::error_code error; !fs::is_regular_file(path, error))
      throw ModelError(fmt::format("model '{}' has not been pulled; looked for {}\nrun: baton pull {}",
                                   shown_url(model.url), path.string(), shown_url(model.url)));
  }
  return part ? file.parent_path() / part->of(1) : file;
}

}  // namespace

fs::path find_pulled(const ModelSource& source) {
  return std::visit([](const auto& model) { return find_pulled(model); }, source);
}

std::vector<PulledModel> pulled_models() {
  const HubCache cache;
  std::vector<PulledModel> models;
  for (const std::string& repository : cache.repositories()) {
    const auto commit = cache.commit(repository, "main");
    if (!commit) continue;
    const fs::path snapshot = cache.snapshot(repository, *commit);
    const std::vector<HubFile> files = cache.files(repository, *commit);
    const auto add = [&](const std::string& choice) {
      try {
        const ModelChoice chosen = choose_model(files, choice, repository);
        const std::string name = fmt::format("hf:{}{}{}", repository, choice.empty() ? "" : ":", choice);
        models.push_back({name, chosen.gguf.empty() ? snapshot : snapshot / chosen.gguf});
      } catch (const ChoiceError&) {
        // No model, or a part of one.
      }
    };
    bool has_gguf = false;
    for (const HubFile& file : files) {
      if (!is_model(snapshot / file.name)) continue;
      has_gguf = true;
      add(file.name);
    }
    if (!has_gguf || is_model(snapshot)) add(has_gguf ? "safetensors" : "");
  }
  return models;
}

}  // namespace baton
