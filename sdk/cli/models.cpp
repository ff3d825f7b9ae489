// SPDX-License-Identifier: Apache-2.0
// baton models: the models that a bare name finds.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include <baton/system.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

int list(bool json) {
  const auto found = models();
  if (json) {
    auto all = nlohmann::ordered_json::array();
    for (const auto& model : found) {
      all.push_back({{"name", model.name},
                     {"path", model.path.string()},
                     {"architecture", model.architecture},
                     {"layers", model.layers},
                     {"context", model.context},
                     {"bytes", model.bytes},
                     {"problem", model.problem}});
    }
    result(all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return kOk;
  }
  int width = 0;
  for (const auto& model : found) width = std::max(width, display_width(model.name));
  for (const auto& model : found) {
    result(fmt::format("{}  {}\n", padded(model.name, width),
                       model.problem.empty()
                           ? fmt::format("{}, {} layers, context {}, {}, {}", model.architecture, model.layers,
                                         model.context, size(static_cast<double>(model.bytes)), model.path.string())
                           : fmt::format("unusable: {}", model.problem)));
  }
  if (found.empty())
    note("no models found in:\n");
  else
    note("searched folders:\n");
  for (const auto& folder : model_search_path()) note("  " + folder.string() + "\n");
  return kOk;
}

}  // namespace

void add_models(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("models", "List the models that a bare name finds");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "Print JSON");
  verb->footer(
      "A model is a GGUF file, or a Hugging Face folder: config.json, tokenizer.json and .safetensors files. Bare "
      "names\n"
      "are looked for in the folders of BATON_MODEL_PATH (colon-separated) and next to the program.\n\n"
      "Examples:\n"
      "  BATON_MODEL_PATH=~/models baton models\n"
      "  baton run team.yaml --model qwen3-0.6b");
  verb->callback([json, &action] { action = [json] { return list(*json); }; });
}

}  // namespace baton::cli
