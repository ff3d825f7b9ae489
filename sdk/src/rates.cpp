// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "engine/backend/make_backend.h"
#include "engine/model/forward.h"
#include "engine/model/model.h"
#include "engine/reuse/placement.h"

namespace baton::inline v1 {
namespace {

constexpr std::int32_t kDepth = 512;  // tokens in the cache of a sequence that decodes
constexpr double kSeconds = 0.3;      // for each measured line, at least
constexpr double kLong = 2.0;         // seconds of a run that is repeated once only

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the median of 5 runs or more; if they take long, that of one. A first run, which may start things, is never
/// counted.
double median_seconds(const std::function<void()>& run) {
  if (seconds_of(run) > kLong) return seconds_of(run);
  std::vector<double> times;
  double spent = 0.0;
  while (times.size() < 5 || (spent < kSeconds && times.size() < 1000)) {
    times.push_back(seconds_of(run));
    spent += times.back();
  }
  return median(std::move(times));
}

/// Multiply-adds x 2 of one token in all layers, without attention over keys.
double layer_flops(const ModelConfig& c) {
  double flops = 0;
  for (std::int32_t layer = 0; layer < c.layers; ++layer) {
    const double q = static_cast<double>(c.heads) * c.head_dim_of(layer);
    const double kv = c.kv_layer(layer) == layer ? static_cast<double>(c.kv_heads_of(layer)) * c.head_dim_of(layer) : 0;
    flops += 4.0 * c.width * q + 4.0 * c.width * kv + 6.0 * c.width * c.ffn_width_of(layer) +
             6.0 * c.width * c.token_input.width;
  }
  return flops;
}

/// The columns of the queries of all layers.
double query_cols(const ModelConfig& c) {
  double cols = 0;
  for (std::int32_t layer = 0; layer < c.layers; ++layer) cols += static_cast<double>(c.heads) * c.head_dim_of(layer);
  return cols;
}

class Rates {
 public:
  Rates(Backend& backend, const Model& model) : backend_(backend), model_(model), forward_(backend, model) {}

  PrefillRate prefill(std::int32_t tokens, double gemm_limit) {
    KvCache cache = prompt_cache(tokens);
    StepRows rows = prompt_rows(cache, tokens);
    const double seconds = median_seconds([&] { forward_.run(rows); });
    cache.commit(tokens);
    if (!prompt_ || prompt_->length() < tokens) prompt_ = std::move(cache);
    const ModelConfig& c = model_.config;
    const double attention = 4.0 * query_cols(c) * tokens * (tokens + 1) / 2.0;
    const double flops = layer_flops(c) * tokens + attention + 2.0 * c.width * c.vocabulary;
    return {tokens, tokens / seconds, gemm_limit > 0 ? flops / seconds / 1e9 / gemm_limit : 0.0};
  }

  /// All sequences begin with copies of the longest prefill's tokens. Plain steps and recording ones take turns.
  DecodeRate decode(std::int32_t sequences, std::int32_t depth, double bandwidth_limit) {
    make_prompt(depth);
    const Segment text(backend_, *prompt_, 0, depth, std::vector<TokenId>(static_cast<std::size_t>(depth)));
    KvLayout recording = model_.kv_layout();
    recording.raw_keys = recording.received = true;
    recording.hidden_width = model_.config.stream_width();
    recording.hidden_layer = 1;
    Step plain(*this, model_.kv_layout(), text, sequences), recorded(*this, recording, text, sequences);
    plain.seconds(), recorded.seconds();
    std::vector<double> seconds, ratios;
    double spent = 0.0;
    while (seconds.size() < 5 || (spent < 2 * kSeconds && seconds.size() < 1000)) {
      const bool first = seconds.size() % 2 == 0;
      double other = first ? recorded.seconds() : 0.0;
      seconds.push_back(plain.seconds());
      if (!first) other = recorded.seconds();
      ratios.push_back(other / seconds.back());
      spent += seconds.back() + other;
    }
    const double step = median(std::move(seconds));
    const double kv = static_cast<double>(depth) * sequences * static_cast<double>(text.bytes()) / depth;
    const double bytes = static_cast<double>(bytes_of_step(model_)) + kv;
    const double share = bandwidth_limit > 0 ? bytes / step / 1e9 / bandwidth_limit : 0.0;
    return {depth, sequences, sequences / step, share, median(std::move(ratios)) - 1.0};
  }

 private:
  KvCache prompt_cache(std::int32_t tokens) {
    KvLayout layout = model_.kv_layout();
    layout.raw_keys = true;  // decode() copies from it
    return {backend_, layout, tokens};
  }

  StepRows prompt_rows(KvCache& cache, std::int32_t tokens) {
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (std::int32_t i = 0; i < tokens; ++i) rows.add_row(index, i, (i * 37 + 11) % model_.config.vocabulary);
    rows.logits_rows.push_back(tokens - 1);
    rows.choices.emplace_back();  // greedy
    return rows;
  }

  /// Makes sure that `prompt_` can be copied as far as `depth`. A state stands for a whole prompt.
  void make_prompt(std::int32_t depth) {
    const bool has_state = model_.kv_layout().state_bytes > 0;
    if (prompt_ && (has_state ? prompt_->length() == depth : prompt_->length() >= depth)) return;
    KvCache cache = prompt_cache(depth);
    StepRows rows = prompt_rows(cache, depth);
    forward_.run(rows);
    cache.commit(depth);
    prompt_ = std::move(cache);
  }

  /// One decode step of sequences that hold copies of a text.
  class Step {
   public:
    Step(Rates& rates, const KvLayout& layout, const Segment& text, std::int32_t sequences) : forward_(rates.forward_) {
      const std::int32_t depth = text.length();
      caches_.reserve(static_cast<std::size_t>(sequences));
      for (std::int32_t i = 0; i < sequences; ++i) {
        KvCache& cache = caches_.emplace_back(rates.backend_, layout, depth + 1);
        insert(rates.backend_, rates.forward_.angles(), cache, {0, &text, 0, depth});
        if (cache.states().kept()) cache.states().put(depth, rates.prompt_->states().at(depth));
        cache.commit(depth);
        rows_.add_row(rows_.add_cache(&cache), depth, (i * 37 + 65) % rates.model_.config.vocabulary);
        rows_.logits_rows.push_back(i);
        rows_.choices.emplace_back();  // greedy
      }
    }
    double seconds() {
      return seconds_of([&] { forward_.run(rows_); });
    }

   private:
    Forward& forward_;
    std::vector<KvCache> caches_;
    StepRows rows_;
  };

  Backend& backend_;
  const Model& model_;
  Forward forward_;
  std::optional<KvCache> prompt_;  // the longest so far
};

}  // namespace

std::int64_t bytes_of_step(const Model& model) {
  const Weights& weights = model.weights;
  const std::size_t tables = (model.config.tied_embeddings ? 0 : weights.embedding->bytes) +
                             (weights.token_table ? weights.token_table->bytes : 0);
  return static_cast<std::int64_t>(weights.bytes - tables);
}

RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped) {
  RowCosts costs;
  const std::int32_t depth = std::min(kDepth, model.options.context / 2);
  constexpr std::int32_t kMaxExtraRows = 256;
  costs.depth = depth;
  Forward forward(backend, model);
  KvCache decoding(backend, model.kv_layout(), depth + 1), other(backend, model.kv_layout(), depth + kMaxExtraRows);
  const auto token = [&](std::int32_t at) { return (at * 37 + 11) % model.config.vocabulary; };
  for (KvCache* cache : {&decoding, &other}) {
    StepRows prompt;
    const std::int32_t index = prompt.add_cache(cache);
    for (std::int32_t at = 0; at < depth; ++at) prompt.add_row(index, at, token(at));
    forward.run(prompt);
    cache->commit(depth);
  }
  for (const std::int32_t rows : {0, 1, 2, 4, 8, 11, 16, 24, 32, 48, 64, 96, 128, 192, kMaxExtraRows}) {
    if (stopped()) break;
    StepRows step;
    step.add_row(step.add_cache(&decoding), depth, token(depth));
    step.logits_rows.push_back(0);
    step.choices.emplace_back();
    const std::int32_t index = rows > 0 ? step.add_cache(&other) : 0;
    for (std::int32_t at = depth; at < depth + rows; ++at) step.add_row(index, at, token(at));
    const double ms = 1000 * median_seconds([&] { forward.run(step); });
    costs.steps.push_back({rows, ms});
    const double slower = ms / costs.steps.front().ms - 1;
    if (slower <= costs.slowdown) costs.knee = rows;
    if (slower > 2.0) break;
  }
  return costs;
}

void measure_rates(std::vector<PrefillRate>& prefill, std::vector<DecodeRate>& decode, Backend& backend,
                   const Model& model, const RatesToMeasure& what) {
  Rates rates(backend, model);
  for (const int tokens : what.prefill) {
    if (!what.go_on(fmt::format("prefill of {} tokens", tokens))) return;
    prefill.push_back(rates.prefill(tokens, what.gemm_gflops));
  }
  for (const auto& [rows, depth] : what.decode) {
    if (!what.go_on(fmt::format("decode of {} sequences, {} tokens deep", rows, depth))) return;
    decode.push_back(rates.decode(rows, depth, what.bandwidth_gbs));
  }
}

namespace {

/// A model on a device of its own, for a measurement.
struct OpenedAlone {
  std::unique_ptr<Backend> backend;
  std::shared_ptr<const Model> model;  // which the backend must outlive
};

OpenedAlone open_alone(const RateOptions& options) {
  OpenedAlone opened;
  opened.backend = make_backend({options.device, options.threads});
  ModelOptions own;
  own.dtype = own.kv_dtype = options.dtype == "f32" ? DType::f32 : DType::bf16;
  own.activations = options.activations == "bf16" ? DType::bf16 : DType::f32;
  if (options.on_progress) options.on_progress("reading the model");
  opened.model = open_model(*opened.backend, find_model(options.model), own);
  return opened;
}

}  // namespace

ModelRates measure_rates(const RateOptions& options) {
  return with_resource_errors([&] {
    const OpenedAlone opened = open_alone(options);
    const int room = opened.model->options.context - 1;
    const auto check = [&](const char* what, int tokens) {
      if (tokens < 1 || tokens > room)
        throw InputError(
            fmt::format("{}: expected 1 to {} tokens, which the context holds, found {}", what, room, tokens));
    };
    for (const int tokens : options.prefill) check("prefill", tokens);
    for (const DecodeStep& step : options.decode) check("decode", step.depth);
    const BackendInfo info = opened.backend->info();
    ModelRates result;
    result.device = info.description();
    result.threads = info.threads;
    RatesToMeasure what{options.prefill, options.decode};
    what.go_on = [&](const std::string& now) {
      if (options.on_progress) options.on_progress(now);
      return !options.stop.stop_requested();
    };
    measure_rates(result.prefill, result.decode, *opened.backend, *opened.model, what);
    result.complete = !options.stop.stop_requested();
    return result;
  });
}

RowCosts measure_rows(const RateOptions& options) {
  return with_resource_errors([&] {
    const OpenedAlone opened = open_alone(options);
    return measure_row_costs(*opened.backend, *opened.model, [&] { return options.stop.stop_requested(); });
  });
}

}  // namespace baton::inline v1
