// run_bench: a model, its agents, and every method in turn.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "engine/backend/limits.h"
#include "engine/backend/make_backend.h"
#include "engine/local_engine.h"
#include "engine/model/shapes.h"
#include "engine/model_profile.h"
#include "sdk/src/bench_agents.h"
#include "sdk/src/bench_rates.h"
#include "sdk/src/internal.h"

namespace baton::inline v1 {
namespace {

const std::string kLockstep = "lockstep";
const std::string kAnchors = "anchors";
constexpr std::int64_t kLargeModel = 1'000'000'000;  // parameters

void check_number(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw InputError(fmt::format("{}: {} is not in [{}, {}]", name, value, least, most));
}

void check_name(const char* name, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw InputError(fmt::format("{}: '{}' is not known; known are {}", name, value, fmt::join(known, ", ")));
}

/// No agents.
bool only_rates(const BenchOptions& options) { return options.methods == std::vector<std::string>{"none"}; }

void check(const BenchOptions& options) {
  if (options.shape.empty() == options.model.empty()) throw InputError("shape: either a shape or a model is measured");
  if (!options.shape.empty()) check_name("shape", options.shape, bench_shapes());
  if (options.layers != 0 && options.shape.empty())
    throw InputError("layers: only a shape can have another number of them");
  check_number("layers", options.layers, 0, 1024);
  check_number("agents", options.agents, 1, 32);
  check_number("prefix", options.prefix, 1, 1 << 20);
  check_number("question", options.question, 1, 1 << 20);
  check_number("output", options.output, 1, 1 << 20);
  check_number("repeat", options.repeat, 0, 1000);
  check_name("dtype", options.dtype, {"bf16", "f32"});
  if (!only_rates(options)) {
    for (const std::string& method : options.methods) check_name("methods", method, bench_methods());
  }
  for (const int anchors : options.anchors) check_number("anchors", anchors, 1, 1000);
  for (const int tokens : options.prefill) check_number("prefill", tokens, 1, 1 << 20);
  for (const auto& [rows, depth] : options.decode) {
    check_number("decode", rows, 1, 4096);
    check_number("decode", depth, 1, 1 << 20);
  }
  if (!(options.select > 0.0 && options.select <= 1.0))
    throw InputError(fmt::format("select: {} is not in (0, 1]", options.select));
}

/// The range published for the shape, or one of the same proportions, for `layers` layers.
LayerRange usual_range(const Shape* shape, std::int32_t layers) {
  LayerRange range{1, 2, layers * 5 / 8};
  if (shape != nullptr && shape->relay_end > 0) {
    const std::int32_t all = find_shape(shape->name).config.layers;
    range = {shape->relay_start, shape->relay_detect, shape->relay_end * layers / all};
  }
  range.end = std::max(range.end, range.detect + 1);
  return range;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {
    check(options_);
    if (options_.methods.empty()) {
      options_.methods = bench_methods();
      for (const std::string& method : {kLockstep, kAnchors}) std::erase(options_.methods, method);
    }
  }

  RowCosts row_costs() {
    open();
    progress("rows that ride along");
    return measure_row_costs(*backend_, *model_, [this] { return options_.stop.stop_requested(); });
  }

  BenchResult run() {
    open();
    choose_range();
    std::optional<BenchAgents> agents;
    if (!only_rates(options_)) agents.emplace(options_, range_, model_->config.vocabulary);
    check_context(agents ? &*agents : nullptr);
    describe();
    progress("limits of the machine");
    const MachineLimits limits = measure_limits(*backend_, model_->options.dtype);
    result_.gemm_gflops = limits.gemm_gflops;
    result_.bandwidth_gbs = limits.bandwidth_gbs;
    measure_rates(result_, *backend_, *model_, options_);
    const auto stopped = [this] { return options_.stop.stop_requested(); };
    if (options_.rows && !stopped()) {
      progress("rows that ride along");
      result_.row_costs = measure_row_costs(*backend_, *model_, stopped);
    }
    result_.complete = !stopped() && (!agents || measure(*agents));
    return std::move(result_);
  }

 private:
  struct Row {  // of one method
    BenchAgents::Way way;
    std::vector<std::vector<BenchAgents::Pass>> passes;  // [agents][repeats]
    std::vector<double> wall_ms;                         // [repeats]
  };

  void progress(const std::string& what) const {
    if (options_.on_progress) options_.on_progress(what);
  }

  void check_context(const BenchAgents* agents) const {
    const std::int64_t room = model_->options.context - 1;
    const auto fits = [&](const char* option, const std::string& what, std::int64_t tokens) {
      if (tokens <= room) return;
      throw InputError(fmt::format("{}: {} {} tokens; the context of {} leaves room for {}", option, what, tokens,
                                   model_->options.context, room));
    };
    if (agents != nullptr)
      fits("agents", fmt::format("the last of {} has a prompt of", options_.agents), agents->length(options_.agents));
    for (const int tokens : options_.prefill) fits("prefill", "a prompt of", tokens);
    for (const auto& step : options_.decode) fits("decode", "a depth of", step.depth);
  }

  void open() {
    const auto begin = std::chrono::steady_clock::now();
    backend_ = make_backend({options_.device, options_.threads});
    ModelOptions own;
    own.dtype = own.kv_dtype = options_.dtype == "f32" ? DType::f32 : DType::bf16;
    if (options_.shape.empty()) {
      progress("reading the model");
      model_ = open_model(*backend_, find_model(options_.model), own);
    } else {
      shape_ = find_shape(options_.shape, options_.layers);
      progress("making random weights");
      model_ = make_random_model(*backend_, *shape_, options_.seed, own);
    }
    result_.load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
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
      throw InputError(fmt::format("layers_range: {},{},{} is none; expected three growing layers of {}, from 0",
                                   range_.start, range_.detect, range_.end, layers));
    }
    const auto& methods = options_.methods;
    if (std::find(methods.begin(), methods.end(), "relay") != methods.end()) {
      throw InputError(fmt::format("layers: relay needs at least 4 layers, the model has {}", layers));
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
    result_.device = info.name + ": " + info.device;
    result_.threads = info.threads;
    result_.shape = shape_ ? shape_->name : (model_->path / "").parent_path().filename().string();
    result_.dtype = options_.dtype;
    result_.layers = c.layers;
    result_.layers_range = {range_.start, range_.detect, range_.end};
    result_.repeat = options_.repeat;
    result_.weights_bytes = static_cast<std::int64_t>(model_->weights.bytes);
    const auto element = static_cast<std::int64_t>(size_of(model_->options.kv_dtype));
    result_.kv_bytes_per_token = 2 * element * c.layers * c.kv_heads * c.head_dim;
    result_.segment_bytes_per_token = result_.kv_bytes_per_token + (range_.start > 0 ? element * c.width : 0) +
                                      static_cast<std::int64_t>(sizeof(float) + sizeof(TokenId));
  }

  /// All repeats of the agents under each method. False when stopped.
  bool measure(BenchAgents agents) {
    internal::EngineOptions own;
    own.slowdown = options_.slowdown;
    if (measures_anchors()) own.segment_budget_bytes = own.anchor_budget_bytes = std::int64_t{1} << 48;  // as asked for
    LocalEngine engine(std::move(backend_), std::move(model_), own);  // which the model must not outlive
    progress("KV of the question and the answers");
    if (!agents.prepare(engine)) return false;
    std::vector<Row> rows;
    for (const std::string& method : options_.methods) {
      const std::vector<int> none = {0};
      for (const int anchors : method == kAnchors ? options_.anchors : none) {
        Row& row = rows.emplace_back();
        row.way.method = method;
        row.way.anchors = anchors;
        row.passes.resize(static_cast<std::size_t>(options_.agents));
      }
    }
    if (measures_anchors()) {
      progress("anchors");
      if (!agents.learn_anchors(engine)) return false;
    }
    const bool all = run_passes(agents, engine, rows);
    for (Row& row : rows) {
      if (row.way.method == kLockstep) {
        if (all) result_.methods.push_back({kLockstep, 0, {}});
      } else if (all || !row.passes.back().empty()) {  // at least one whole repeat
        result_.methods.push_back(summary(row));
      }
    }
    if (!all) return false;
    const auto& methods = options_.methods;
    if (std::find(methods.begin(), methods.end(), kLockstep) != methods.end() && !measure_rows(agents, engine))
      return false;
    const EngineStats stats = engine.stats();
    if (stats.segments.evicted > 0)
      throw ResourceError(ResourceError::Kind::memory, "the memory for KV cannot hold the reused texts");
    result_.kv_peak_bytes = stats.kv_peak_bytes;
    result_.segments_peak_bytes = stats.segments.peak_bytes;
    return true;
  }

  /// The methods take turns, so that a machine that slows down hits all of them. False when stopped.
  bool run_passes(BenchAgents& agents, LocalEngine& engine, std::vector<Row>& rows) {
    for (int repeat = 0; repeat < options_.repeat; ++repeat) {
      for (Row& row : rows) {
        row.wall_ms.push_back(0.0);
        row.way.repeat = repeat;  // with texts of its own: comparing them is part of the time
        if (row.way.anchors > 0) agents.add_anchors(engine, row.way.anchors, repeat);
      }
      for (int agent = 1; agent <= options_.agents; ++agent) {
        for (std::size_t turn = 0; turn < rows.size(); ++turn) {
          Row& row = rows[(turn + static_cast<std::size_t>(repeat + agent)) % rows.size()];
          if (row.way.method == kLockstep) continue;
          progress(fmt::format("repeat {} of {}, agent {}, {}", repeat + 1, options_.repeat, agent, row.way.method));
          auto pass = agents.run(engine, row.way, agent);
          if (!pass) return false;
          row.wall_ms.back() += pass->wall_ms;
          row.passes[static_cast<std::size_t>(agent - 1)].push_back(std::move(*pass));
        }
      }
    }
    return true;
  }

  /// The whole row of agents under each method.
  bool measure_rows(const BenchAgents& agents, LocalEngine& engine) {
    for (BenchMethod& method : result_.methods) {
      progress(fmt::format("all agents with their answers, {}", method.method));
      auto row = agents.run_row(engine, {method.method, method.anchors, 0});
      if (!row) return false;
      method.row_ms = row->wall_ms;
      if (method.method == kLockstep) {
        method.agents = row->agents;
        method.wall_ms = row->wall_ms;
      }
      for (std::size_t i = 0; i < method.agents.size(); ++i)
        method.agents[i].decode_ms_per_token = row->agents[i].decode_ms_per_token;
      if (method.method != kLockstep) continue;
      for (BenchAgent& agent : method.agents) {
        std::vector<double> times;
        for (int repeat = 0; repeat < options_.repeat; ++repeat) {
          progress(fmt::format("agent {}, the text behind its last placeholder", agent.agent));
          const auto time = agents.text_pass(engine, agent.agent);
          if (!time) return false;
          times.push_back(*time);
        }
        const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
        std::nth_element(times.begin(), middle, times.end());
        agent.text_pass_ms = *middle;
      }
    }
    return true;
  }

  bool measures_anchors() const {
    return std::find(options_.methods.begin(), options_.methods.end(), kAnchors) != options_.methods.end();
  }

  BenchMethod summary(Row& row) {
    BenchMethod summary{row.way.method, row.way.anchors, {}};
    for (auto& passes : row.passes) {
      if (row.way.method == "full") hash(passes.front().logits);
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
    for (const float value : logits) hash_ = (hash_ ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
    result_.logits_hash = fmt::format("{:016x}", hash_);
  }

  BenchOptions options_;
  std::unique_ptr<Backend> backend_;  // until the engine takes it
  std::shared_ptr<const Model> model_;
  std::optional<Shape> shape_;
  LayerRange range_;
  std::uint64_t hash_ = 14695981039346656037u;
  BenchResult result_;
};

}  // namespace

std::vector<std::string> bench_shapes() { return shape_names(); }
std::string bench_config(const std::string& shape) {
  check_name("shape", shape, bench_shapes());
  return shape_config(shape);
}

std::vector<std::string> bench_methods() { return reuse_methods(); }

RowCosts measure_rows(const BenchOptions& options) {
  return with_resource_errors([&] { return Bench(options).row_costs(); });
}

BenchResult run_bench(const BenchOptions& options) {
  return with_resource_errors([&] { return Bench(options).run(); });
}

}  // namespace baton::inline v1
