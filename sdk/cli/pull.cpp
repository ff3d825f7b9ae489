// SPDX-License-Identifier: Apache-2.0
// baton pull: downloads a published model.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include <baton/system.h>

#include "sdk/cli/verbs.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/pull/pull.h"

namespace baton::cli {
namespace {

struct PullArguments {
  std::string model;
  std::string revision;
  std::string sha256;
  int retries = 5;
  bool offline = false;
  bool dry_run = false;
  bool json = false;
  bool quiet = false;
};

ExitCode exit_code(PullError::Kind kind) {
  switch (kind) {
    case PullError::Kind::usage:
      return kUsage;
    case PullError::Kind::access:
    case PullError::Kind::network:
      return kRunFailed;
    case PullError::Kind::checksum:
      return kVerificationFailed;
    case PullError::Kind::storage:
    case PullError::Kind::unavailable:
      return kResources;
    case PullError::Kind::stopped:
      break;
  }
  return kInterrupted;
}

std::string file_size(std::int64_t bytes) { return bytes < 0 ? "size unknown" : size(static_cast<double>(bytes)); }

/// What a person should know before it begins: which commit, which licence, which files.
std::string plan_text(const PullPlan& plan) {
  std::string text = plan.source;
  if (!plan.commit.empty()) {
    text += fmt::format(", revision {} ({}), licence: {}{}", plan.revision, plan.commit.substr(0, 8),
                        plan.licence.empty() ? "not stated" : plan.licence, plan.gated ? ", gated" : "");
  }
  for (const PullFile& file : plan.files) {
    text += fmt::format("\n  {}  {}", file.name, file_size(file.bytes));
    if (file.complete)
      text += ", is there";
    else if (file.present > 0)
      text += fmt::format(", {} are there", file_size(file.present));
  }
  if (plan.remaining_bytes() > 0)
    text += fmt::format("\n{} to download into {}", file_size(plan.remaining_bytes()), plan.cache.string());
  return text;
}

std::string json_text(const PullPlan& plan, bool dry_run) {
  auto files = nlohmann::ordered_json::array();
  for (const PullFile& file : plan.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(file.bytes)},
                     {"checksum", file.checksum},
                     {"present_bytes", file.present},
                     {"cached", file.complete}});
  }
  const nlohmann::ordered_json json = {
      {"schema", 1},           {"source", plan.source},      {"revision", plan.revision},
      {"commit", plan.commit}, {"licence", plan.licence},    {"gated", plan.gated},
      {"dry_run", dry_run},    {"path", plan.path.string()}, {"files", files}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int pull(const PullArguments& arguments) {
  TransferLine line;
  PullRequest request;
  request.model = arguments.model;
  request.revision = arguments.revision;
  request.sha256 = arguments.sha256;
  request.offline = arguments.offline;
  request.dry_run = arguments.dry_run;
  request.retries = arguments.retries;
  request.stop = interrupted();
  if (!arguments.quiet) {
    request.on_plan = [&](const PullPlan& plan) { line.say(plan_text(plan)); };
    request.on_progress = [&](const PullProgress& now) { line.update(now.file, now.done, now.total); };
    request.on_note = [&](const std::string& text) { line.say(text); };
  }
  PullPlan plan;
  try {
    plan = pull_model(request);
  } catch (const PullError& error) {
    line.clear();
    throw Failure(exit_code(error.kind), error.kind == PullError::Kind::stopped
                                             ? "interrupted; the same command goes on where it stopped"
                                             : error.what());
  }
  line.clear();
  if (arguments.json) {
    result(json_text(plan, arguments.dry_run));
  } else if (!arguments.dry_run) {
    if (!arguments.quiet) note(printable("run it: baton run FILE --model " + plan.source, Lines::fold) + "\n");
    result(plan.path.string() + "\n");
  }
  return kOk;
}

}  // namespace

void add_pull(CommandLine& line) {
  auto* verb = line.add_verb("pull", "Download a published model");
  auto arguments = std::make_shared<PullArguments>();
  verb->add_option("model", arguments->model, "ORG/NAME of a repository, with :FILE or :QUANTISATION; or a URL")
      ->required()
      ->type_name("MODEL");
  verb->add_option("--revision", arguments->revision, "Branch, tag or commit, in place of main")->type_name("REV");
  verb->add_flag("--dry-run", arguments->dry_run, "Only say what would be downloaded");
  verb->add_flag("--offline", arguments->offline, "Only look into the cache, as with HF_HUB_OFFLINE=1");
  verb->add_option("--sha256", arguments->sha256, "Checksum that the file of a URL must have")->type_name("HEX");
  verb->add_option("--retries", arguments->retries, "Attempts after failures of the network in a row")
      ->type_name("N")
      ->range(0, 1000)
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "Print what was pulled as JSON");
  verb->add_flag("-q,--quiet", arguments->quiet, "Print only the path, and errors");
  verb->footer(
      "Prints the model's path. Of a repository of GGUF files, QUANTISATION (Q4_K_M, in any case) or FILE chooses "
      "one;\n"
      "without it the error lists what there is, with sizes. Of a repository of safetensors files everything that "
      "Baton\n"
      "reads is downloaded. Files go into the cache of the Hugging Face hub (HF_HOME, HF_HUB_CACHE,\n"
      "~/.cache/huggingface), where other tools find them, and what those have downloaded is not downloaded again.\n"
      "Checksums are verified. Ctrl-C keeps what has come; the same command goes on from there.\n\n"
      "Private and gated repositories need a token in HF_TOKEN or ~/.cache/huggingface/token. HF_ENDPOINT names a\n"
      "mirror, https_proxy a proxy.\n\n"
      "Examples:\n"
      "  baton pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M\n"
      "  baton run team.yaml --model hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M\n"
      "  baton pull HuggingFaceTB/SmolLM2-135M-Instruct --dry-run\n"
      "  baton pull https://example.org/models/small.gguf --sha256 9f86d081...\n\n"
      "Exit codes: 0 ok, 1 not found, no access, or the network, 2 no or several matching files, 4 no room,\n"
      "6 a wrong checksum, 130 interrupted.");
  verb->run([arguments] { return pull(*arguments); });
}

// baton models: the models that a bare name finds.

namespace {

int list_families(bool json) {
  const auto joined = [](const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); };
  auto all = nlohmann::ordered_json::array();
  for (const auto& family : families()) {
    if (json) {
      all.push_back({{"name", family.name},
                     {"classes", family.classes},
                     {"architectures", family.architectures},
                     {"layers", family.layers},
                     {"proofs", family.proofs}});
    } else {
      result(fmt::format("{}\n  config.json    {}\n  GGUF           {}\n  layers         {}\n  compared with  {}\n",
                         family.name, joined(family.classes), joined(family.architectures), family.layers,
                         joined(family.proofs)));
    }
  }
  if (json) result(all.dump(2) + "\n");
  return kOk;
}

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

void add_models(CommandLine& line) {
  auto* verb = line.add_verb("models", "List the models that a bare name finds");
  auto json = std::make_shared<bool>(false);
  auto of_families = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "Print JSON");
  verb->add_flag("--families", *of_families, "List the families of models that can be run");
  verb->footer(
      "A model is a GGUF file, or a Hugging Face folder: config.json, tokenizer.json and .safetensors files. Bare "
      "names\n"
      "are looked for in the folders of BATON_MODEL_PATH (colon-separated) and next to the program.\n\n"
      "Examples:\n"
      "  BATON_MODEL_PATH=~/models baton models\n"
      "  baton run team.yaml --model qwen3-0.6b");
  verb->run([json, of_families] { return *of_families ? list_families(*json) : list(*json); });
}

}  // namespace baton::cli
