// SPDX-License-Identifier: Apache-2.0
// run_bench: a model, its agents, and every method in turn.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include <baton/lab/bench.h>

#include "engine/backend/make_backend.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/learning/profile_files.h"
#include "engine/loop/step_engine.h"
#include "engine/model/model.h"
#include "engine/registry.h"
#include "sdk/lab/bench_agents.h"
#include "sdk/src/internal.h"

namespace baton::inline v1::lab {
namespace {

/// What the limits are of that the model's products and reads are compared with.
LimitsToMeasure asked_of(const Model& model) {
  const auto is_quantized = [](const Matrix& matrix) {
    return static_cast<std::int64_t>(matrix.bytes) < 2 * matrix.rows * matrix.cols;
  };
  const auto& layers = model.weights.layers;
  const bool quantized =
      std::any_of(layers.begin(), layers.end(), [&](const LayerWeights& layer) { return is_quantized(layer.first()); });
  return {bytes_of_step(model), quantized, model.options.activations == DType::bf16};
}

constexpr std::int64_t kAsMuchAsAsked = std::int64_t{1} << 48;  // bytes
constexpr std::int64_t kLargeModel = 1'000'000'000;             // parameters

/// True for methods that need neither learning nor decoding nor a second model.
bool takes_one_pass(const Method& method) {
  return !computes_ahead(method) && !learns(method) && !reads_other_models(method);
}

/// The range published for the shape, or one of the same proportions, for `layers` layers.
LayerRange usual_range(const Shape* shape, std::int32_t layers) {
  LayerRange range{1, 2, layers * 5 / 8};
  if (shape != nullptr && shape->rectify_end > 0) {
    const std::int32_t all = find_shape(shape->name).config.layers;
    range = {shape->rectify_start, shape->rectify_detect, shape->rectify_end * layers / all};
  }
  range.end = std::max(range.end, range.detect + 1);
  return range;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {
    check(options_);
    if (options_.methods.empty()) {
      for (const Method* method : methods()) {
        if (takes_one_pass(*method)) options_.methods.emplace_back(method->name);
      }
    }
    for (const std::string& name : options_.methods) {
      if (const Method* method = find_method(name)) methods_.push_back(method);
    }
  }

  BenchResult run() {
    open();
    choose_range();
    check_context();
    describe();
    progress("limits of the machine");
    const MachineLimits limits = measure_limits(*backend_, asked_of(*model_));
    result_.products = limits.products;
    result_.gemm_gflops = limits.gemm_gflops;
    result_.bandwidth_gbs = limits.bandwidth_gbs;
    measure_bare_model();
    const auto stopped = [this] { return options_.stop.stop_requested(); };
    if (options_.rows && !stopped()) {
      progress("rows that ride along");
      result_.row_costs = measure_row_costs(*backend_, *model_, stopped);
    }
    result_.complete = !stopped() && (only_rates(options_) || measure());
    return std::move(result_);
  }

 private:
  /// Prefill and decode of the bare model, and their fractions of the limits, which are known by now.
  void measure_bare_model() {
    constexpr int kUsual = 512;  // tokens
    const int usual = std::min(kUsual, static_cast<int>(model_->options.context) - 1);
    RatesToMeasure what{options_.prefill, options_.decode, result_.gemm_gflops, result_.bandwidth_gbs};
    if (what.prefill.empty()) what.prefill = {std::min(64, usual), usual};
    if (what.decode.empty()) what.decode = {{1, usual}, {4, usual}, {16, usual}};
    what.go_on = [this](const std::string& now) {
      progress(now);
      return !options_.stop.stop_requested();
    };
    measure_rates(result_.prefill, result_.decode, *backend_, *model_, what);
  }

  struct Row {  // of one method
    BenchAgents::Way way;
    std::vector<std::vector<BenchAgents::Pass>> passes;  // [agents][repeats]
    std::vector<double> wall_ms;                         // [repeats]
  };

  void progress(const std::string& what) const {
    if (options_.on_progress) options_.on_progress(what);
  }

  std::vector<BenchAgents::Sizes> sizes() const {
    std::vector<BenchAgents::Sizes> all;
    for (const int prefix : options_.prefix)
      for (const int output : options_.output) all.push_back({prefix, output, static_cast<int>(all.size())});
    return all;
  }

  BenchAgents agents_of(const BenchAgents::Sizes& sizes) const {
    return BenchAgents(options_, sizes, range_, vocabulary_);
  }

  void check_context() const {
    const std::int64_t room = model_->options.context - 1;
    const auto fits = [&](const char* option, const std::string& what, std::int64_t tokens) {
      if (tokens <= room) return;
      throw InputError(fmt::format("{}: {} {} tokens; the context of {} leaves room for {}", option, what, tokens,
                                   model_->options.context, room));
    };
    if (!only_rates(options_)) {
      BenchAgents::Sizes longest;
      for (const int prefix : options_.prefix) longest.prefix = std::max(longest.prefix, prefix);
      for (const int output : options_.output) longest.output = std::max(longest.output, output);
      fits("agents", fmt::format("the last of {} has a prompt of", options_.agents),
           agents_of(longest).length(options_.agents));
    }
    for (const int tokens : options_.prefill) fits("prefill", "a prompt of", tokens);
    for (const auto& step : options_.decode) fits("decode", "a depth of", step.depth);
  }

  void open() {
    const auto begin = std::chrono::steady_clock::now();
    backend_ = make_backend({options_.device, options_.threads});
    if (options_.from_host && backend_->info().host_memory) {
      throw InputError(fmt::format("from_host: expected a GPU, found device '{}', which has no memory of its own",
                                   backend_->info().name));
    }
    ModelOptions own;
    own.dtype = own.kv_dtype = options_.dtype == "f32" ? DType::f32 : DType::bf16;
    own.activations = options_.activations == "bf16" ? DType::bf16 : DType::f32;
    if (options_.shape.empty()) {
      progress("reading the model");
      model_ = open_model(*backend_, find_model(options_.model), own);
    } else {
      shape_ = find_shape(options_.shape, options_.layers);
      progress("making random weights");
      model_ = make_random_model(*backend_, *shape_, options_.seed, own);
    }
    result_.load_ms = milliseconds(std::chrono::steady_clock::now() - begin);
    vocabulary_ = model_->config.vocabulary;
    if (options_.repeat == 0) options_.repeat = repeats();
  }

  void choose_range() {
    const std::int32_t layers = model_->config.layers;
    range_ = usual_range(shape_ ? &*shape_ : nullptr, layers);
    if (!shape_) {
      const FoundProfile found = find_profile(*model_);
      if (found.profile) range_ = found.profile->range();
    }
    if (options_.layers_range)
      range_ = {(*options_.layers_range)[0], (*options_.layers_range)[1], (*options_.layers_range)[2]};
    if (range_.valid(layers)) return;
    if (options_.layers_range) {
      throw InputError(
          fmt::format("layers_range: {},{},{} is invalid: expected three increasing layers below {}, from 0",
                      range_.start, range_.detect, range_.end, layers));
    }
    for (const Method* method : methods_) {
      if (needs_range(*method) || needs_group(*method))
        throw InputError(fmt::format("layers: {} needs at least 4 layers, the model has {}", method->name, layers));
    }
    range_ = {};
  }

  /// A large model on the CPU is measured once.
  int repeats() const {
    return backend_->info().name == "cpu" && parameter_count(model_->config) > kLargeModel ? 1 : 3;
  }

  void describe() {
    const ModelConfig& c = model_->config;
    const BackendInfo info = backend_->info();
    result_.device = info.description();
    result_.threads = info.threads;
    result_.shape = shape_ ? shape_->name : (model_->path / "").parent_path().filename().string();
    result_.dtype = options_.dtype;
    result_.activations = options_.activations;
    result_.layers = c.layers;
    result_.layers_range = {range_.start, range_.detect, range_.end};
    result_.repeat = options_.repeat;
    result_.weights_bytes = static_cast<std::int64_t>(model_->weights.bytes);
    const auto element = static_cast<std::int64_t>(size_of(model_->options.kv_dtype));
    result_.kv_bytes_per_token = static_cast<std::int64_t>(model_->kv_layout().token_bytes());
    result_.segment_bytes_per_token = result_.kv_bytes_per_token + (range_.start > 0 ? element * c.width : 0) +
                                      static_cast<std::int64_t>(sizeof(float) + sizeof(TokenId));
  }

  /// The agents of every size under each method. False when stopped.
  bool measure() {
    LocalEngineOptions own;
    own.slowdown = options_.slowdown;
    own.max_draft = 0;  // decoding is measured token by token
    // Reused texts are measured where they can be read, or all where they cannot.
    own.host_segment_budget_bytes = options_.from_host ? kAsMuchAsAsked : -1;
    if (measures(learns)) own.segment_budget_bytes = own.method_budget_bytes = kAsMuchAsAsked;
    StepEngine engine(std::move(backend_), std::move(model_), own);  // which the model must not outlive
    const std::vector<BenchAgents::Sizes> all = sizes();
    bool complete = true;
    for (const BenchAgents::Sizes& one : all) {
      if (all.size() == 1) {
        complete = measure(engine, one, result_.methods);
        continue;
      }
      BenchCase found{one.prefix, one.output, {}, {}};
      try {
        complete = with_resource_errors([&] { return measure(engine, one, found.methods); });
      } catch (const ResourceError& error) {  // the others may fit
        found.methods.clear();
        found.error = error.what();
      }
      if (!found.methods.empty() || !found.error.empty()) result_.cases.push_back(std::move(found));
      if (!complete) break;
      for (const Method* method : methods_) {
        if (learns(*method)) learned_state_of(*method, options_.seed)->clear(*engine.method_state(*method));
      }
    }
    const EngineStats stats = engine.stats();
    result_.kv_peak_bytes = stats.kv_peak_bytes;
    result_.segments_peak_bytes = stats.segments.peak_bytes;
    return complete;
  }

  /// All repeats of a chain of agents under each method. False when stopped.
  bool measure(LocalEngine& engine, const BenchAgents::Sizes& sizes, std::vector<BenchMethod>& methods) {
    BenchAgents agents = agents_of(sizes);
    case_ = options_.prefix.size() * options_.output.size() == 1
                ? std::string()
                : fmt::format("role {}, answers {}, ", sizes.prefix, sizes.output);
    const std::int64_t evicted = engine.stats().segments.evicted;
    progress(case_ + "KV of the question and the answers");
    if (!agents.prepare(engine)) return false;
    std::vector<Row> rows = rows_to_run();
    for (const Method* method : methods_) {
      if (!learns(*method)) continue;
      progress(case_ + std::string(method->name));
      if (!agents.learn(engine, *method)) return false;
    }
    const bool all = run_passes(agents, engine, rows);
    for (Row& row : rows) {
      if (computes_ahead(*row.way.method)) {
        if (all) methods.push_back({std::string(row.way.method->name)});
      } else if (all || !row.passes.back().empty()) {  // at least one whole repeat
        methods.push_back(summary(row));
      }
    }
    if (!all || (measures(computes_ahead) && !measure_rows(agents, engine, methods))) return false;
    if (options_.memory && result_.memory.empty() && !measure_memory(agents, engine, rows)) return false;
    if (engine.stats().segments.evicted > evicted)
      throw ResourceError(ResourceError::Kind::memory, "the KV budget is too small for the reused texts");
    return true;
  }

  std::vector<Row> rows_to_run() const {
    std::vector<Row> rows;
    for (const Method* method : methods_) {
      const std::vector<int> learned = learns(*method) ? options_.learned : std::vector<int>{0};
      const std::vector<double> selects =
          chooses_tokens(*method) && options_.select.size() > 1 ? options_.select : std::vector<double>{0.0};
      for (const int count : learned) {
        for (const double select : selects) {
          Row& row = rows.emplace_back();
          row.way = {method, count, select, 0};
          row.passes.resize(static_cast<std::size_t>(options_.agents));
        }
      }
    }
    return rows;
  }

  /// Once for each method, with the texts of the first size.
  bool measure_memory(const BenchAgents& agents, LocalEngine& engine, const std::vector<Row>& rows) {
    std::vector<BenchMemory> found;
    for (const Row& row : rows) {
      if (!found.empty() && found.back().method == row.way.method->name) continue;
      progress(fmt::format("memory, {}", row.way.method->name));
      const auto memory = agents.memory(engine, row.way);
      if (!memory) return false;
      found.push_back(*memory);
    }
    result_.memory = std::move(found);
    return true;
  }

  /// The methods take turns, so that a machine that slows down hits all of them. False when stopped.
  bool run_passes(BenchAgents& agents, LocalEngine& engine, std::vector<Row>& rows) {
    for (int repeat = 0; repeat < options_.repeat; ++repeat) {
      for (Row& row : rows) {
        row.wall_ms.push_back(0.0);
        row.way.repeat = repeat;  // with texts of its own: comparing them is part of the time
        if (row.way.learned > 0) agents.fill(engine, row.way);
      }
      for (int agent = 1; agent <= options_.agents; ++agent) {
        for (std::size_t turn = 0; turn < rows.size(); ++turn) {
          Row& row = rows[(turn + static_cast<std::size_t>(repeat + agent)) % rows.size()];
          if (computes_ahead(*row.way.method)) continue;
          progress(fmt::format("{}repeat {} of {}, agent {}, {}", case_, repeat + 1, options_.repeat, agent,
                               row.way.method->name));
          if (options_.from_host) engine.park();
          auto pass = agents.run(engine, row.way, agent);
          if (!pass) return false;
          row.wall_ms.back() += pass->wall_ms;
          row.passes[static_cast<std::size_t>(agent - 1)].push_back(std::move(*pass));
        }
      }
    }
    return true;
  }

  /// The whole chain of agents under each of the methods of row_methods.
  bool measure_rows(const BenchAgents& agents, LocalEngine& engine, std::vector<BenchMethod>& methods) {
    const std::vector<std::string>& asked = options_.row_methods;
    for (BenchMethod& method : methods) {
      const Method& way = *find_method(method.method);
      const bool whole = asked.empty() || std::find(asked.begin(), asked.end(), method.method) != asked.end();
      if (whole) {
        progress(fmt::format("{}all agents with their answers, {}", case_, method.method));
        auto row = agents.run_row(engine, {&way, method.learned, method.select, 0});
        if (!row) return false;
        method.row_ms = row->wall_ms;
        if (computes_ahead(way)) {
          method.agents = row->agents;
          method.wall_ms = row->wall_ms;
        }
        for (std::size_t i = 0; i < method.agents.size(); ++i)
          method.agents[i].decode_ms_per_token = row->agents[i].decode_ms_per_token;
      }
      if (computes_ahead(way) && !measure_text_passes(agents, engine, method)) return false;
    }
    return true;
  }

  /// Times a pass over the text behind the last placeholder; where no chain was run, these are the numbers reported.
  bool measure_text_passes(const BenchAgents& agents, LocalEngine& engine, BenchMethod& lockstep) {
    const bool alone = lockstep.agents.empty();
    for (int number = 1; number <= options_.agents; ++number) {
      std::vector<BenchAgent> times;
      for (int repeat = 0; repeat < options_.repeat; ++repeat) {
        progress(fmt::format("{}agent {}, the text behind its last placeholder", case_, number));
        const auto time = alone && number == 1 ? first_agent(agents, engine) : agents.text_pass(engine, number);
        if (!time) return false;
        times.push_back(*time);
      }
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
      std::nth_element(times.begin(), middle, times.end(),
                       [](const BenchAgent& a, const BenchAgent& b) { return a.ttft_ms < b.ttft_ms; });
      if (alone) lockstep.agents.push_back(*middle);
      BenchAgent& agent = lockstep.agents[static_cast<std::size_t>(number - 1)];
      if (!alone || number > 1) agent.text_pass_ms = middle->ttft_ms;
      if (alone) lockstep.wall_ms += agent.ttft_ms;
    }
    return true;
  }

  /// The first agent: nothing ran before, so that no part of the prompt can be computed ahead.
  std::optional<BenchAgent> first_agent(const BenchAgents& agents, LocalEngine& engine) const {
    const auto pass = agents.run(engine, {&lockstep_method()}, 1);
    if (!pass) return std::nullopt;
    return pass->numbers;
  }

  bool measures(bool (*property)(const Method&)) const {
    return std::any_of(methods_.begin(), methods_.end(), [&](const Method* method) { return property(*method); });
  }

  BenchMethod summary(Row& row) {
    BenchMethod summary{std::string(row.way.method->name), row.way.learned, row.way.select, {}};
    for (auto& passes : row.passes) {
      if (row.way.method == &full_method()) hash(passes.front().logits);
      const auto middle = passes.begin() + static_cast<std::ptrdiff_t>((passes.size() - 1) / 2);
      std::nth_element(passes.begin(), middle, passes.end(),
                       [](const auto& a, const auto& b) { return a.numbers.ttft_ms < b.numbers.ttft_ms; });
      summary.agents.push_back(middle->numbers);
    }
    const auto middle = row.wall_ms.begin() + static_cast<std::ptrdiff_t>((row.wall_ms.size() - 1) / 2);
    std::nth_element(row.wall_ms.begin(), middle, row.wall_ms.end());
    summary.wall_ms = *middle;
    return summary;
  }

  /// FNV-1a over the bits of the logits of all agents.
  void hash(std::span<const float> logits) {
    for (const float value : logits) hash_ = fnv1a(hash_, std::bit_cast<std::uint32_t>(value));
    result_.logits_hash = fmt::format("{:016x}", hash_);
  }

  BenchOptions options_;
  std::vector<const Method*> methods_;  // of options_.methods
  std::unique_ptr<Backend> backend_;    // until the engine takes it
  std::shared_ptr<const Model> model_;
  std::optional<Shape> shape_;
  std::int32_t vocabulary_ = 0;
  LayerRange range_;
  std::string case_;  // for progress
  std::uint64_t hash_ = kFnvStart;
  BenchResult result_;
};

}  // namespace

std::vector<std::string> bench_shapes() { return shape_names(); }
std::string bench_config(const std::string& shape) {
  check_name("shape", shape, bench_shapes());
  return shape_config(shape);
}

std::vector<std::string> bench_methods() {
  std::vector<std::string> names;
  for (const Method* method : methods()) names.emplace_back(method->name);
  return names;
}

BenchResult run_bench(const BenchOptions& options) {
  return with_resource_errors([&] { return Bench(options).run(); });
}

}  // namespace baton::inline v1::lab
