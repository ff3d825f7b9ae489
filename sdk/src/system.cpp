// SPDX-License-Identifier: Apache-2.0
// The devices and models of this machine.
#include <fmt/format.h>

#include <algorithm>

#include "agents/tools/tool.h"
#include "engine/backend/make_backend.h"
#include "engine/model/config.h"
#include "engine/model/forward.h"
#include "engine/registry.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/src/internal.h"

#include <baton/reuse_method.h>
#include <baton/system.h>

namespace baton::inline v1 {
namespace fs = std::filesystem;
namespace {

DeviceInfo describe_device(const std::string& name) {
  try {
    const BackendInfo info = make_backend({name, 0})->info();
    return {info.name, info.device, {}};
  } catch (const std::exception& error) {
    return {name, {}, error.what()};
  }
}

ModelInfo model_info(const fs::path& path) {
  ModelInfo info;
  info.name = path.filename().string();
  info.path = path;
  try {
    const auto files = open_model_files(path);
    const ModelConfig config = files->config();
    info.architecture = config.architecture;
    info.layers = config.layers;
    info.context = config.context;
    info.bytes = static_cast<std::int64_t>(files->bytes());
  } catch (const std::exception& problem) {
    info.problem = problem.what();
  }
  return info;
}

std::vector<PulledModel> pulled_here() {
  try {
    return pulled_models();
  } catch (const std::exception&) {
    return {};  // without a home there is no cache
  }
}

}  // namespace

std::vector<IsolationFact> isolation() { return ToolRegistry::with_builtins().find("python")->isolation(); }

std::vector<DeviceInfo> devices() { return {describe_device("cpu"), describe_device("cuda")}; }

std::vector<ModelInfo> models() {
  std::vector<ModelInfo> models;
  for (const auto& folder : model_search_path()) {
    std::error_code error;
    std::vector<fs::path> here;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (is_model(entry.path())) here.push_back(entry.path());
    }
    std::sort(here.begin(), here.end());
    for (const auto& model : here) {
      const auto same_name = [&](const ModelInfo& other) { return other.name == model.filename().string(); };
      if (std::none_of(models.begin(), models.end(), same_name)) models.push_back(model_info(model));
    }
  }
  for (const PulledModel& pulled : pulled_here()) {
    ModelInfo info = model_info(pulled.path);
    info.name = pulled.name;
    if (info.problem.empty()) models.push_back(std::move(info));  // other tools' models share the cache
  }
  return models;
}

std::vector<ModelFamily> families() { return model_families(); }

// baton doctor --device: a device against the CPU, down to the tokens of an answer.

namespace {

/// Returns the greedy tokens that follow a text.
std::vector<TokenId> continued(Backend& backend, const std::filesystem::path& path, std::size_t count) {
  const auto model = open_model(backend, path, ModelOptions{});
  std::vector<TokenId> ids = model->tokenizer->encode(
      "A farm has 7 hens and 3 cows. Hens have 2 legs and cows have 4 legs.", SpecialTokens::as_text);
  Forward forward(backend, *model);
  KvCache cache(backend, model->kv_layout(), static_cast<std::int32_t>(ids.size() + count));
  std::vector<TokenId> answer;
  while (answer.size() < count) {
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (const TokenId id : ids) rows.add_row(index, cache.length() + static_cast<std::int32_t>(rows.size()), id);
    rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    rows.choices.emplace_back();  // greedy
    forward.run(rows);
    cache.commit(cache.length() + static_cast<std::int32_t>(ids.size()));
    ids = {forward.chosen()[0].id};
    answer.push_back(ids[0]);
  }
  return answer;
}

/// Returns where the device's tokens part from the CPU's, or an empty text.
std::string compare_answers(Backend& subject, Backend& reference) {
  constexpr std::size_t kTokens = 24;
  const std::filesystem::path path = find_model("nano");
  const auto found = continued(subject, path, kTokens), expected = continued(reference, path, kTokens);
  const auto [own, other] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (own == found.end()) return {};
  return fmt::format("token {} of {} is {}, the CPU's {}", own - found.begin() + 1, kTokens, *own, *other);
}

}  // namespace

void check_device(const std::string& device, const std::function<void(const DeviceCheck&)>& on_check) {
  const auto subject = with_resource_errors([&] { return make_backend({device, 0}); });
  const auto reference = make_backend({"cpu", 0});
  const auto report = [&](const SelfTestPart& part) { on_check({part.name, part.problem, part.milliseconds}); };
  run_self_test(*subject, *reference, report);
  report(
      run_self_test_part("an answer of nano, token by token", [&] { return compare_answers(*subject, *reference); }));
}

const std::vector<ReuseMethod>& reuse_methods() {
  static const std::vector<ReuseMethod> all = [] {
    std::vector<ReuseMethod> found;
    for (const Method* method : methods()) {
      found.push_back({.name = std::string(method->name),
                       .alias = std::string(method->alias),
                       .summary = std::string(method->summary),
                       .exact = is_exact(*method),
                       .reuses = reuses_prefixes(*method),
                       .prefixes = always_reuses_prefixes(*method),
                       .segments = hands_over(*method),
                       .ahead = computes_ahead(*method),
                       .learns = learns(*method),
                       .models = reads_other_models(*method),
                       .group = needs_group(*method)});
    }
    return found;
  }();
  return all;
}

const ReuseMethod* find_reuse_method(std::string_view name) {
  const std::vector<ReuseMethod>& all = reuse_methods();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const ReuseMethod& method) { return method.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace baton::inline v1
