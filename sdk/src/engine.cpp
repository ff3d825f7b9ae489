// SPDX-License-Identifier: Apache-2.0
// Engine: models by path, each opened once and shared by every run.
#include <baton/session.h>
#include <baton/version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "engine/base/clock.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/utf8.h"
#include "engine/learning/profile_files.h"
#include "engine/registry.h"
#include "engine/reuse/between_models.h"
#include "sdk/src/model_ranges.h"

#include "sdk/record/record_folder.h"
#include "sdk/src/internal.h"
#include "sdk/src/model_path.h"
#include "workflows/run/turn.h"

namespace baton::inline v1 {
namespace {

/// Throws InputError if `given` names a turn that `may_have` it not.
template <typename Value, typename Test>
void check_turns(const char* option, const Plan& plan, const std::map<std::string, Value>& given, Test may_have) {
  std::vector<std::string> known;
  for (const PlannedTurn& turn : plan.turns) {
    if (may_have(turn)) known.push_back(turn.id);
  }
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw InputError(fmt::format("{}: unknown turn '{}'; expected {}", option, name,
                                   known.empty() ? "none" : fmt::format("one of {}", fmt::join(known, ", "))));
  }
}

}  // namespace

struct Engine::Impl {
  using Key = std::tuple<std::filesystem::path, DType, DType, DType, std::int32_t>;
  struct OpenModel {
    std::shared_ptr<LocalEngine> engine;
    double load_ms = 0.0;
    std::int64_t device_bytes = 0, host_bytes = 0;  // budgets that the first workflow asked for
    std::filesystem::path store;                    // and its store
  };
  using Opened = std::shared_future<OpenModel>;

  ~Impl() {
    for (const auto& [key, opened] : models) {
      try {
        keep_states(*opened.get().engine);
        keep_history(*opened.get().engine);
        finish_store(*opened.get().engine);
      } catch (const std::exception& error) {
        try_to([&] { warn(error.what()); });
      }
    }
  }

  EngineOptions options;
  std::shared_ptr<InCallback> in_callback = std::make_shared<InCallback>();
  std::mutex mutex;
  std::map<Key, Opened> models;
  std::mutex profiling;
  std::atomic<bool> told_of_history = false;
  ServedModels served;

  /// Throws in a callback of the engine, which holds up what `call` waits for.
  void may_wait(const char* call) const {
    if (in_callback->here())
      throw InputError(fmt::format("{}: called from a callback of the engine, which would wait for itself", call));
  }

  /// `inputs`: of the run that it is opened for; null: they are not known yet.
  OpenPlan open(std::shared_ptr<const Plan> plan, const Inputs* inputs, const std::stop_token& stop) {
    OpenPlan open;
    std::set<const InferenceEngine*> counted;
    const auto open_model_of = [&](const PlannedTurn& turn) {
      if (turn.model.empty() || open.engines.count(turn.model) != 0) return;
      if (turn.served) {
        const auto located = locate_model(*plan->spec, turn.model, options.model);
        open.servers[turn.model] = served.open(
            located, options.slowdown, [this](const std::string& doubt) { warn(doubt); }, stop);
        return;
      }
      const OpenModel model = open_model(*plan->spec, turn.model, stop);
      if (counted.insert(model.engine.get()).second) open.load_ms += model.load_ms;
      open.engines.emplace(turn.model, model.engine);
    };
    for (const PlannedTurn& turn : plan->turns) open_model_of(turn);
    for (const auto& [name, engine] : open.engines) check_layers(*plan->spec, name, engine->model());
    const auto begin = Clock::now();
    if (uses_levels(*plan->reuse.method))
      find_levels(*plan, open, inputs);
    else if (needs_range(*plan->reuse.method))
      find_ranges(*plan, open, stop);
    for (const auto& [name, engine] : open.engines) {
      if (!stop.stop_requested()) check_reuse(*plan->spec, plan->reuse, name, *engine);
    }
    open.measure_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    for (const PlannedTurn& turn : plan->turns) {  // last: a model that summarises alone hands nothing over
      if (turn.summary && !stop.stop_requested()) open_model_of(*turn.summary);
    }
    open.plan = needs_group(*plan->reuse.method) ? with_group(*plan, open) : std::move(plan);
    return open;
  }

  /// The layers that rectify recomputes, of each model: those of the file, else of the model's profile.
  void find_ranges(const Plan& plan, const OpenPlan& open, const std::stop_token& stop) {
    for (const auto& entry : open.engines) {
      LocalEngine& engine = *entry.second;
      if (plan.reuse.range.valid(engine.model().config.layers)) continue;
      const std::lock_guard lock(profiling);
      with_resource_errors(
          [&] { ensure_layer_range(engine, wants_paper_range(plan.reuse), profile_progress(engine.model()), stop); });
    }
  }

  /// What is known of rectification on each model that has texts handed over.
  void find_levels(const Plan& plan, const OpenPlan& open, const Inputs* inputs) {
    if (!takes_segments(plan.reuse)) return;
    const bool asks = !options.store.empty() || plan.reuse.store;
    for (const PlannedTurn& turn : plan.turns) {
      if (turn.exact || !turn.has_prompt() || turn.served) continue;
      LocalEngine& engine = *open.engines.at(turn.model);
      const bool stored = asks && engine.may_have_store();  // any text may be in the store
      if (!stored && !can_be_relayed(plan, turn, inputs, engine.model())) continue;
      const std::lock_guard lock(profiling);
      const bool first = engine.calibration().levels.levels.empty();
      with_resource_errors([&] { ensure_relay_levels(engine); });
      if (first) read_relay_history(engine);
    }
  }

  /// The plan with the groups of layers that method droidspeak recomputes: that of the file, else one for each pair of
  /// its models. All begin in the first layer that any pair needs, because an author keeps hidden states of one layer.
  std::shared_ptr<const Plan> with_group(const Plan& plan, const OpenPlan& open) {
    auto completed = std::make_shared<Plan>(plan);
    LayerRange& range = completed->reuse.range;
    if (range.end > 0) {
      range.detect = range.start;  // only the ends count in a range for rectify
      return completed;
    }
    std::map<std::pair<std::string, std::string>, StoredPair> pairs;
    with_resource_errors([&] {
      for (const auto& names : hand_overs_between(plan)) {
        const auto &from = open.engines.at(names.first), &to = open.engines.at(names.second);
        if (!kv_difference(from->model(), to->model()).empty()) continue;  // computed in full, as the run will say
        StoredPair pair = pair_of(from->model(), to->model());
        const LayerRange group = pair.group();
        range = pairs.empty() ? group
                              : LayerRange::group(std::min(range.start, group.start), std::max(range.end, group.end));
        pairs.emplace(names, std::move(pair));
      }
    });
    for (const auto& [names, pair] : pairs)
      completed->larger_ends[names] = ends_of(LayerRange::group(range.start, pair.group().end), pair.effect.points);
    if (range.end == 0) range = LayerRange::group(0, 1);  // nothing is handed over
    return completed;
  }

  /// Waits until the engines have measured the places about which they know too little. Returns false when they have
  /// not.
  bool finish_measuring(std::chrono::milliseconds time, const std::stop_token& stop) {
    time = bounded_wait(time);
    if (time > time.zero()) may_wait("finish_measuring");
    const auto end = Clock::now() + time;
    const auto measuring = [](const auto& entry) {
      if (entry.second.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
      return entry.second.get().engine->stats().measuring > 0;
    };
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (std::none_of(models.begin(), models.end(), measuring)) return true;
      }
      if (stop.stop_requested() || Clock::now() >= end) return false;
      std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(20)));
    }
  }

  std::function<void(double share)> profile_progress(const Model& model) const {
    return [this, folder = model.path.string()](double share) {
      if (options.on_profile) options.on_profile(folder, share);
    };
  }

  /// A model of the workflow, opened if need be. Throws ResourceError, and Interrupted soon after a stop was requested.
  OpenModel open_model(const WorkflowSpec& workflow, const std::string& name, const std::stop_token& stop) {
    LocatedModel model = locate_model(workflow, name, options.model);
    if (!options.kv_dtype.empty()) model.spec.kv_dtype = options.kv_dtype == "f32" ? DType::f32 : DType::bf16;
    std::error_code error;
    const Key key(std::filesystem::canonical(model.folder, error), model.spec.dtype, model.spec.kv_dtype,
                  model.spec.activations, model.spec.context);
    while (true) {
      try {
        return open_model(model, key, workflow, stop);
      } catch (const Interrupted&) {
        if (stop.stop_requested()) throw;  // else it was the run that opened the model for both
      }
    }
  }

  OpenModel open_model(const LocatedModel& model, const Key& key, const WorkflowSpec& workflow,
                       const std::stop_token& stop) {
    std::promise<OpenModel> promise;
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
        promise.set_value(with_resource_errors([&] { return load(model, workflow.relay, stop); }));
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          models.erase(key);  // the next run tries again
        }
        promise.set_exception(std::current_exception());
      }
    }
    while (opened.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
      if (stop.stop_requested()) throw Interrupted();
    }
    OpenModel found = opened.get();
    if (!ours) check_budgets(found, workflow, model.folder);
    return found;
  }

  /// Budgets are those of the workflow that the model was opened for.
  void check_budgets(const OpenModel& model, const WorkflowSpec& workflow, const std::filesystem::path& folder) const {
    const RelaySpec& relay = workflow.relay;
    if (options.store.empty() && !relay.store.empty() && relay.store != model.store) {
      warn(fmt::format("workflow '{}': relay.store {} has no effect: {} is open already, {}", workflow.name,
                       relay.store.string(), folder.string(),
                       model.store.empty() ? "without a store" : "with " + model.store.string()));
    }
    const bool device = options.kv_budget == 0 && relay.device_bytes != 0 && relay.device_bytes != model.device_bytes;
    const bool host = relay.host_bytes != 0 && relay.host_bytes != model.host_bytes;
    if (!device && !host) return;
    warn(fmt::format("workflow '{}': relay.memory.{} {} has no effect: {} is open already, with {}", workflow.name,
                     device ? "device" : "host", device ? relay.device_bytes : relay.host_bytes, folder.string(),
                     device ? model.device_bytes : model.host_bytes));
  }

  void warn(const std::string& message) const {
    if (options.on_warning) options.on_warning(message);
  }

  std::unique_ptr<RunRecorder> recorder(const Engine& of, const Workflow& workflow, const RunOptions& run) const {
    JournalHead head{workflow.impl().file, {}, {}, workflow.fingerprint(), {}, {}, {}};
    for (const auto& [name, value] : workflow.impl().options.set) head.set.push_back(name + "=" + value);
    for (const auto& [name, path] : workflow.impl().options.models) head.models.push_back(name + "=" + path);
    if (!options.model.empty()) head.models.push_back(options.model);
    return std::make_unique<RunRecorder>(of, workflow, run, std::move(head), options.on_warning);
  }

  /// Reads what methods kept of the model in an earlier process.
  void read_states(LocalEngine& engine) const {
    if (options.learned_folder.empty()) return;
    for (const Method* method : methods()) {
      MethodState* state = engine.method_state(*method);
      if (state == nullptr) continue;
      try {
        state->load(options.learned_folder, engine.model());
      } catch (const std::exception& error) {
        warn(error.what());
      }
    }
  }
  /// The corrections learned for the model: next to its weights, else in the user's cache.
  void read_corrections(LocalEngine& engine) const {
    const Model& model = engine.model();
    for (const auto& file : {corrections_beside(model.path), corrections_in_cache(model.fingerprint)}) {
      std::error_code missing;
      if (file.empty() || !std::filesystem::exists(file, missing)) continue;
      try {
        auto learned = std::make_shared<const Corrections>(load_corrections(file, model));
        return update_calibration(engine, [&](Calibration& now) { now.corrections = std::move(learned); });
      } catch (const std::exception& error) {
        warn(error.what());
      }
    }
  }
  /// What is measured of a model while it runs; that it cannot be kept is said once.
  void keep_history(LocalEngine& engine) {
    const std::string why = keep_relay_history(engine);
    if (why.empty() || told_of_history.exchange(true)) return;
    warn(fmt::format(
        "what was measured of {} cannot be kept, so that each process measures again ({}); XDG_CACHE_HOME names "
        "another folder",
        engine.model().path.string(), why));
  }
  void keep_states(LocalEngine& engine) const {
    if (options.learned_folder.empty()) return;
    for (const Method* method : methods()) {
      if (const MethodState* state = engine.method_state(*method)) state->save(options.learned_folder, engine.model());
    }
  }

  void finish_store(LocalEngine& engine) const {
    engine.finish_store();
    const KvStoreStats stats = engine.stats().store;
    const std::string path = engine.model().path.string();
    if (stats.dropped > 0)
      warn(fmt::format("{} pieces of KV of {} were not written into its store{}", stats.dropped, path,
                       stats.error.empty() ? ": too many waited" : ": " + stats.error));
    if (stats.damaged > 0)
      warn(fmt::format("{} files in the store of {} were damaged and are removed", stats.damaged, path));
  }

  /// Gives the engine the store of its host or of the workflow. Returns its folder; empty: it has none.
  std::filesystem::path open_store(LocalEngine& engine, const LocatedModel& model, const RelaySpec& relay) const {
    const bool hosts = !options.store.empty();
    const std::filesystem::path folder = hosts ? std::filesystem::path(options.store) : relay.store;
    if (folder.empty()) return {};
    const auto refuse = [&](const std::string& why) {
      warn(fmt::format("no KV of {} is kept in {}: {}", model.folder.string(), folder.string(), why));
      return std::filesystem::path();
    };
    if (!engine.may_have_store()) return refuse("a store needs the CPU, and a model without recurrent layers");
    const std::int64_t workflows = relay.store_bytes > 0 ? relay.store_bytes : kStoreBudget;
    const std::int64_t budget = options.store_budget > 0 ? options.store_budget : workflows;
    const ModelOptions& opened = engine.model().options;
    const std::string settings =
        fmt::format("{} {} {} {} {} {}", version(), kv_key_of(engine.model()), engine.info().device,
                    static_cast<int>(opened.dtype), static_cast<int>(opened.activations), opened.context);
    try {
      KvLayout layout = engine.model().kv_layout();
      layout.raw_keys = true;
      const auto absolute = std::filesystem::absolute(folder);
      engine.set_store(std::make_unique<KvStore>(absolute, budget, settings, std::move(layout)), hosts);
      return relay.store;
    } catch (const std::exception& error) {
      return refuse(error.what());
    }
  }

  OpenModel load(const LocatedModel& model, const RelaySpec& relay, const std::stop_token& stop) const {
    const auto begin = std::chrono::steady_clock::now();
    LocalEngineOptions engine;
    engine.device = options.device;
    engine.threads = options.threads;
    engine.slowdown = options.slowdown;
    if (!options.drafts) engine.max_draft = 0;
    engine.kv_budget_bytes = options.kv_budget > 0 ? options.kv_budget : relay.device_bytes;
    engine.host_segment_budget_bytes = relay.host_bytes;
    engine.model.dtype = model.spec.dtype;
    engine.model.kv_dtype = model.spec.kv_dtype;
    engine.model.activations = model.spec.activations;
    engine.model.context = model.spec.context;
    engine.model.progress = [&](double share) {
      if (stop.stop_requested()) throw Interrupted();
      if (options.on_load) options.on_load(model.folder.string(), share);
    };
    auto opened = open_engine(model.folder, engine);
    if (const std::string& reason = opened->info().device_fallback; !reason.empty())
      warn(fmt::format("{} runs on the CPU: {}", model.folder.string(), reason));
    for (const std::string& part : opened->model().config.left_out)
      warn(fmt::format("{} holds {}, which is not run: the model answers texts alone", model.folder.string(), part));
    for (const std::string& doubt : opened->model().warnings) warn(doubt);
    read_states(*opened);
    read_corrections(*opened);
    const std::filesystem::path store = open_store(*opened, model, relay);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    return {std::move(opened), took.count(), relay.device_bytes, relay.host_bytes, store};
  }
};

Engine Engine::open(const EngineOptions& options) {
  if (!options.model.empty()) find_model(options.model);
  if (!options.kv_dtype.empty() && options.kv_dtype != "bf16" && options.kv_dtype != "f32") {
    throw InputError(fmt::format("unknown kv_dtype '{}'; expected bf16 or f32", options.kv_dtype));
  }
  if (!(options.slowdown >= 0.0 && options.slowdown <= 10.0))
    throw InputError(fmt::format("slowdown: expected a value in [0, 10], found {}", options.slowdown));
  if (options.threads < 0 || options.threads > 4096)
    throw InputError(fmt::format("threads: expected a value in [0, 4096], found {}", options.threads));
  if (options.kv_budget < 0)
    throw InputError(fmt::format("kv_budget: expected at least 0, found {}", options.kv_budget));
  auto impl = make_owned<Impl>();
  impl->options = options;
  impl->options.on_warning = counted(impl->in_callback, options.on_warning);
  impl->options.on_load = counted(impl->in_callback, options.on_load);
  impl->options.on_profile = counted(impl->in_callback, options.on_profile);
  return Engine(std::move(impl));
}

void Engine::prepare(const Workflow& workflow) const {
  impl_->may_wait("prepare");
  impl_->open(workflow.impl().plan, nullptr, {});
}

OpenPlan open_models(const Engine& engine, const Workflow& workflow, const std::stop_token& stop) {
  return engine.impl().open(workflow.impl().plan, nullptr, stop);
}

std::vector<std::shared_ptr<LocalEngine>> OpenPlan::distinct_engines() const {
  std::vector<std::shared_ptr<LocalEngine>> distinct;
  for (const PlannedTurn& turn : plan->turns) {
    const auto found = engines.find(turn.model);
    if (found == engines.end() || std::find(distinct.begin(), distinct.end(), found->second) != distinct.end())
      continue;
    distinct.push_back(found->second);
  }
  return distinct;
}

bool Engine::finish_measuring(std::chrono::milliseconds time, const std::stop_token& stop) const {
  return impl_->finish_measuring(time, stop);
}

Preview Engine::preview(const Workflow& workflow) const { return preview(workflow, {}); }

Preview Engine::preview(const Workflow& workflow, const PreviewOptions& options) const {
  return make_preview(workflow, options, impl_->options.model);
}

Run Engine::start(const Workflow& workflow, const RunOptions& options) const {
  return start_run(*this, workflow, options, {}, {}, servers_of(workflow));
}

namespace {

/// Throws ModelError if the chat template of an agent's model refuses its messages, whatever their texts are;
/// InputError if the host gave some of them.
void check_prompts(const RunRequest& request, const std::stop_token& stop) {
  std::set<std::pair<const InferenceEngine*, std::vector<std::string>>> known;
  for (const PlannedTurn& turn : request.plan->turns) {
    const auto engine = request.engines.find(turn.model);
    if (!turn.has_prompt() || engine == request.engines.end()) continue;
    std::vector<std::string> key;
    for (const PromptMessage& message : turn.messages) key.push_back(message.role);
    for (const auto& [name, value] : turn.template_variables) key.push_back(name + "=" + value);
    if (!known.emplace(engine->second.get(), std::move(key)).second) continue;
    try {
      check_roles(text_for(engine->second->text(), turn, request.local_seconds), turn.messages, stop);
    } catch (const ModelError& error) {
      const std::string words = fmt::format("agent '{}': {}", turn.agent, error.what());
      if (turn.of_host) throw InputError(words);
      throw ModelError(words);
    }
  }
}

}  // namespace

Run start_run(const Engine& engine, const Workflow& workflow, const RunOptions& options, SessionMemory memory,
              std::function<void(const SessionMemory* memory)> on_memory, std::shared_ptr<McpServers> servers) {
  const auto plan = workflow.impl().plan;
  const std::shared_ptr<Engine::Impl>& impl = engine.shared_impl();
  check_allowed(*plan->spec, impl->options.allow_servers);
  if (const auto& absent = plan->spec->absent_tools; !absent.empty())
    throw InputError(
        fmt::format("the workflow needs tools of its host that are not there: {}", fmt::join(absent, ", ")));
  RunRequest request;
  RunOptions timed = options;  // the record has the time, too
  if (timed.local_time.empty()) timed.local_time = local_time_text(local_seconds_now());
  request.local_seconds = seconds_of_option(timed.local_time);
  request.memory = std::move(memory);
  request.on_memory = std::move(on_memory);
  request.inputs = complete_inputs(*plan->spec, options.inputs);
  if (options.timeout.count() < 0)
    throw InputError(fmt::format("timeout: expected at least 0 ms, found {}", options.timeout.count()));
  check_turns("forced_outputs", *plan, options.forced_outputs, [](const PlannedTurn&) { return true; });
  check_turns("forced_thinking", *plan, options.forced_thinking, [](const PlannedTurn&) { return true; });
  std::map<std::string, std::string> to_steps, to_calls;
  for (const auto& [name, text] : options.answers) {
    const std::size_t slash = name.find('/');
    (slash == std::string::npos ? to_steps : to_calls)[name.substr(0, slash)] = text;
  }
  check_turns("answers", *plan, to_steps, [](const PlannedTurn& turn) { return turn.asks(); });
  check_turns("answers", *plan, to_calls, [](const PlannedTurn& turn) { return turn.calls != nullptr; });
  for (const auto& [turn, text] : options.answers) {
    if (!utf8::is_valid(text)) throw InputError(fmt::format("answers: that to '{}' is not valid UTF-8", turn));
  }
  if (const std::string wrong = check_finished(*plan, options.finished); !wrong.empty())
    throw InputError("finished: " + wrong);
  for (const AgentFinished& one : options.finished) {
    const PlannedTurn& turn = plan->turns[static_cast<std::size_t>(one.turn)];
    if (turn.asks() && to_steps.contains(turn.id))
      throw InputError(fmt::format("answers: step '{}' is over, with '{}'; an answer would not be read", turn.id,
                                   beginning(one.record.output, 60)));
    if (to_calls.contains(turn.id))
      throw InputError(fmt::format("answers: turn '{}' is over; an answer to its calls would not be read", turn.id));
  }
  request.finished = options.finished;
  request.answers = options.answers;
  request.calls = options.calls;
  request.on_ask = options.on_ask;
  request.tools = workflow.impl().tools;
  request.seed = options.seed;
  request.timeout = std::min(options.timeout, kMaxWait);
  request.stop = options.stop;
  request.on_event = options.on_event;
  request.forced = options.forced_outputs;
  request.forced_thinking = options.forced_thinking;
  request.on_logits = counted(impl->in_callback, options.on_logits);
  constexpr int kMaxTop = 20;
  if (options.top_logprobs && (*options.top_logprobs < 0 || *options.top_logprobs > kMaxTop))
    throw InputError(fmt::format("top_logprobs: expected 0 to {}, found {}", kMaxTop, *options.top_logprobs));
  request.top_logprobs = options.top_logprobs;
  request.version = version();
  request.plan = with_messages(plan, request.inputs);
  const auto prepare = [impl, servers = std::move(servers)](RunRequest& of, const std::stop_token& stop) {
    start_servers(servers, of, stop);
    if (!of.unready.empty()) return std::function<void()>([] {});
    OpenPlan open = impl->open(of.plan, &of.inputs, stop);
    of.plan = std::move(open.plan);
    of.engines.insert(open.engines.begin(), open.engines.end());
    of.engines.insert(open.servers.begin(), open.servers.end());
    of.load_ms = open.load_ms;
    of.measure_ms = open.measure_ms;
    with_resource_errors([&] { check_prompts(of, stop); });
    return std::function<void()>([impl, engines = std::move(open.engines)] {
      for (const auto& [name, opened] : engines) impl->keep_history(*opened);
    });
  };
  auto recorder = options.record.empty() ? nullptr : impl->recorder(engine, workflow, timed);  // last: it writes
  return start_run(std::move(request), impl->in_callback, prepare, options.on_end, std::move(recorder));
}

Session Engine::session(const Workflow& workflow) const { return new_session(*this, workflow); }

Session Engine::restore(const Workflow& workflow, const std::filesystem::path& file) const {
  return restored_session(*this, workflow, file);
}

RunRecord Engine::run(const Workflow& workflow, const RunOptions& options) const {
  return start(workflow, options).get();
}

}  // namespace baton::inline v1
