// SPDX-License-Identifier: Apache-2.0
// Engine: models by path, each opened once and shared by every run.
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <set>
#include <tuple>

#include "engine/learning/correction_file.h"
#include "engine/reuse/anchors/anchor_file.h"  // of the layers below: before any public header
#include "engine/reuse/between_models.h"
#include "sdk/src/model_ranges.h"

#include "sdk/src/internal.h"
#include "sdk/src/model_path.h"
#include "sdk/src/open_models.h"

namespace baton::inline v1 {
namespace {

/// Names of the models between which answers move; where all agents have one model, that one with itself.
std::set<std::pair<std::string, std::string>> hand_overs_between(const Plan& plan) {
  std::set<std::pair<std::string, std::string>> across, within;
  for (const PlannedTurn& turn : plan.turns) {
    for (const SlotSource& slot : turn.slots) {
      if (slot.kind != SlotSource::Kind::agent_output) continue;
      const std::string& author = plan.turns[static_cast<std::size_t>(slot.turn)].model;
      (author == turn.model ? within : across).emplace(author, turn.model);
    }
  }
  return across.empty() ? within : across;
}

}  // namespace

struct Engine::Impl {
  using Key = std::tuple<std::filesystem::path, DType, DType, std::int32_t>;
  using Opened = std::shared_future<std::shared_ptr<LocalEngine>>;

  ~Impl() {
    for (const auto& [key, opened] : models) {
      try {
        keep_anchors(*opened.get());
      } catch (const std::exception& error) {
        warn(error.what());
      }
    }
  }

  EngineOptions options;
  std::mutex mutex;
  std::map<Key, Opened> models;
  std::mutex profiling;

  /// The engine of a turn of the plan, with the layer range that rectify needs. Without one when stopped.
  std::shared_ptr<LocalEngine> open(const Plan& plan, const std::string& name, const std::stop_token& stop) {
    const auto engine = open(*plan.spec, name);
    if (plan.reuse.method->layers != Method::Layers::detection || plan.reuse.range.valid(engine->model().config.layers))
      return engine;
    const std::lock_guard lock(profiling);
    with_resource_errors([&] { ensure_layer_range(*engine, profile_progress(engine->model()), stop); });
    return engine;
  }

  /// The plan with the group of layers that method droidspeak recomputes: that of the file, else from the first to the
  /// last layer that any pair of its models needs, because an author keeps hidden states of one layer.
  std::shared_ptr<const Plan> with_group(const Plan& plan, const std::stop_token& stop) {
    auto completed = std::make_shared<Plan>(plan);
    LayerRange& range = completed->reuse.range;
    if (range.end > 0) {
      range.detect = range.start;  // of a range that is rectify's, its ends
      return completed;
    }
    const std::lock_guard lock(profiling);
    with_resource_errors([&] {
      for (const auto& [author, reader] : hand_overs_between(plan)) {
        const auto from = open(*plan.spec, author), to = open(*plan.spec, reader);
        if (!kv_difference(from->model(), to->model()).empty()) continue;  // computed in full, as the run will say
        const auto group = find_group(*from, *to, profile_progress(to->model()), stop);
        if (!group) return;
        range = range.end == 0
                    ? *group
                    : LayerRange::group(std::min(range.start, group->start), std::max(range.end, group->end));
      }
    });
    if (range.end == 0) range = LayerRange::group(0, 1);  // nothing is handed over
    return completed;
  }

  std::function<void(double share)> profile_progress(const Model& model) const {
    return [this, folder = model.path.string()](double share) {
      if (options.on_profile) options.on_profile(folder, share);
    };
  }

  /// The engine of a model of the workflow, opened if need be. Throws ResourceError.
  std::shared_ptr<LocalEngine> open(const WorkflowSpec& workflow, const std::string& name) {
    LocatedModel model = locate_model(workflow, name, options.model);
    if (!options.kv_dtype.empty()) model.spec.kv_dtype = options.kv_dtype == "f32" ? DType::f32 : DType::bf16;
    std::error_code error;
    const Key key(std::filesystem::canonical(model.folder, error), model.spec.dtype, model.spec.kv_dtype,
                  model.spec.context);
    std::promise<std::shared_ptr<LocalEngine>> promise;
    Opened opened;
    bool ours = false;
    {
      const std::lock_guard lock(mutex);
      const auto [entry, added] = models.emplace(key, Opened());
      if (added) entry->second = promise.get_future().share();
      opened = entry->second;
      ours = added;
    }
    if (ours) {
      try {
        promise.set_value(with_resource_errors([&] { return load(model, workflow.relay.device_bytes); }));
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          models.erase(key);  // the next run may find what is missing now
        }
        promise.set_exception(std::current_exception());
      }
    }
    return opened.get();
  }

  void warn(const std::string& message) const {
    if (options.on_warning) options.on_warning(message);
  }

  std::filesystem::path anchor_file(const LocalEngine& engine) const {
    return std::filesystem::path(options.anchors_folder) / (anchor_model_key(engine.model()) + ".anchors");
  }
  void read_anchors(LocalEngine& engine) const {
    if (options.anchors_folder.empty()) return;
    std::error_code missing;
    const std::filesystem::path file = anchor_file(engine);
    if (!std::filesystem::exists(file, missing)) return;
    try {
      const ModelConfig& config = engine.model().config;
      load_anchors(file, anchor_model_key(engine.model()), {config.layers, config.kv_heads * config.head_dim},
                   engine.anchors());
    } catch (const std::exception& error) {
      warn(error.what());
    }
  }
  /// What was learned for the model: beside it, else in the user's cache.
  void read_corrections(LocalEngine& engine) const {
    const Model& model = engine.model();
    for (const auto& file : {corrections_beside(model.path), corrections_in_cache(model.fingerprint)}) {
      std::error_code missing;
      if (file.empty() || !std::filesystem::exists(file, missing)) continue;
      try {
        return engine.set_corrections(std::make_shared<const Corrections>(load_corrections(file, model)));
      } catch (const std::exception& error) {
        warn(error.what());
      }
    }
  }
  void keep_anchors(LocalEngine& engine) const {
    if (options.anchors_folder.empty() || engine.anchors().stats().learned == 0) return;
    std::filesystem::create_directories(options.anchors_folder);
    save_anchors(anchor_file(engine), anchor_model_key(engine.model()), engine.anchors());
  }

  std::shared_ptr<LocalEngine> load(const LocatedModel& model, std::int64_t workflow_budget) const {
    LocalEngineOptions engine;
    engine.device = options.device;
    engine.threads = options.threads;
    engine.slowdown = options.slowdown;
    engine.kv_budget_bytes = options.kv_budget > 0 ? options.kv_budget : workflow_budget;
    engine.model.dtype = model.spec.dtype;
    engine.model.kv_dtype = model.spec.kv_dtype;
    engine.model.context = model.spec.context;
    if (options.on_load) {
      engine.model.progress = [&](double share) { options.on_load(model.folder.string(), share); };
    }
    auto opened = open_engine(model.folder, engine);
    read_anchors(*opened);
    read_corrections(*opened);
    return opened;
  }
};

void check_known_inputs(const WorkflowSpec& spec, const std::map<std::string, std::string>& inputs) {
  std::vector<std::string> known;
  for (const auto& input : spec.inputs) known.push_back(input.name);
  for (const auto& [name, value] : inputs) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string text = fmt::format("workflow '{}' has no input '{}'", spec.name, name);
    if (const std::string close = closest(name, known); !close.empty()) {
      text += fmt::format("; did you mean '{}'?", close);
    } else {
      text += known.empty() ? "; it takes none" : fmt::format("; it takes: {}", fmt::join(known, ", "));
    }
    throw InputError(text);
  }
}

Engine Engine::open(const EngineOptions& options) {
  if (!options.model.empty()) find_model(options.model);
  if (!options.kv_dtype.empty() && options.kv_dtype != "bf16" && options.kv_dtype != "f32") {
    throw InputError(fmt::format("kv_dtype '{}' is not known; expected bf16 or f32", options.kv_dtype));
  }
  if (!(options.slowdown >= 0.0 && options.slowdown <= 10.0))
    throw InputError(fmt::format("slowdown {} is not in [0, 10]", options.slowdown));
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  return Engine(std::move(impl));
}

void Engine::prepare(const Workflow& workflow) const {
  const Plan& plan = *workflow.impl().plan;
  for (const auto& turn : plan.turns) impl_->open(plan, turn.model, {});
  if (plan.reuse.method->layers == Method::Layers::group) impl_->with_group(plan, {});
}

std::vector<std::shared_ptr<LocalEngine>> open_models(const Engine& engine, const Workflow& workflow) {
  const Plan& plan = *workflow.impl().plan;
  std::vector<std::shared_ptr<LocalEngine>> engines;
  for (const auto& turn : plan.turns) {
    const auto opened = engine.impl().open(plan, turn.model, {});
    if (std::find(engines.begin(), engines.end(), opened) == engines.end()) engines.push_back(opened);
  }
  return engines;
}

Preview Engine::preview(const Workflow& workflow) const { return preview(workflow, {}); }

Preview Engine::preview(const Workflow& workflow, const PreviewOptions& options) const {
  return make_preview(workflow, options, impl_->options.model);
}

Run Engine::start(const Workflow& workflow, const RunOptions& options) const {
  const auto plan = workflow.impl().plan;
  check_known_inputs(*plan->spec, options.inputs);
  std::vector<std::string> missing;
  for (const auto& input : plan->spec->inputs) {
    if (input.required && !input.default_value && options.inputs.count(input.name) == 0)
      missing.push_back("'" + input.name + "'");
  }
  if (!missing.empty()) throw InputError(fmt::format("missing input: {}", fmt::join(missing, ", ")));

  RunRequest request;
  request.plan = plan;
  request.tools = workflow.impl().tools;
  request.inputs = options.inputs;
  request.seed = options.seed;
  request.timeout = options.timeout;
  request.stop = options.stop;
  request.on_event = options.on_event;
  request.forced = options.forced_outputs;
  request.on_logits = options.on_logits;
  request.engines = [impl = impl_, plan](const std::string& model) { return impl->open(*plan->spec, model); };
  return start_run(std::move(request), [impl = impl_, plan](RunRequest& of) {
    for (const auto& turn : plan->turns) impl->open(*plan, turn.model, of.stop);
    if (plan->reuse.method->layers == Method::Layers::group) of.plan = impl->with_group(*plan, of.stop);
  });
}

RunRecord Engine::run(const Workflow& workflow, const RunOptions& options) const {
  return start(workflow, options).get();
}

}  // namespace baton::inline v1
