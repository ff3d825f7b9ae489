#include "sdk/src/bench_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/model/forward.h"
#include "engine/reuse/placement.h"

namespace baton::inline v1 {
namespace {

constexpr std::int32_t kDepth = 512;  // of decoding sequences
constexpr double kSeconds = 0.3;      // for each measured line, at least

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

/// The median of 5 runs or more; `once`: one run.
double median_seconds(const std::function<void()>& run, bool once = false) {
  std::vector<double> times = {seconds_of(run)};
  double spent = times.back();
  while (!once && (times.size() < 5 || (spent < kSeconds && times.size() < 1000))) {
    times.push_back(seconds_of(run));
    spent += times.back();
  }
  return median(std::move(times));
}

double gemm_gflops(Backend& backend, DType dtype) {
  constexpr std::int64_t kRows = 480, kWidth = 4096, kDeep = 2048;
  std::vector<float> values(static_cast<std::size_t>(kWidth * kDeep));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  const ConstTensorView weights = view_of(static_cast<const float*>(values.data()), kWidth, kDeep);
  const auto matrix = backend.load_matrix({&weights, 1}, dtype);
  const Buffer x = backend.allocate(kRows * kDeep * sizeof(float)),
               out = backend.allocate(kRows * kWidth * sizeof(float));
  backend.copy_to_device(x.data(), std::as_bytes(std::span(values).first(kRows * kDeep)));
  const auto run = [&] {
    backend.matmul(out.view(DType::f32, kRows, kWidth), x.view(DType::f32, kRows, kDeep), *matrix, {});
  };
  run();
  return 2.0 * kRows * kWidth * kDeep / median_seconds(run) / 1e9;
}

std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

double bandwidth_gbs(Backend& backend) {
  const Buffer buffer = backend.allocate(std::size_t{384} << 20);
  std::memset(buffer.data(), 1, buffer.bytes());
  const std::span words(reinterpret_cast<const std::uint64_t*>(buffer.data()), buffer.bytes() / sizeof(std::uint64_t));
  const auto threads = static_cast<std::size_t>(std::max(1, backend.info().threads));
  std::vector<std::uint64_t> sums(threads);
  volatile std::uint64_t sink = 0;
  const double seconds = median_seconds([&] {
    std::vector<std::thread> readers;
    const std::size_t share = words.size() / threads;
    for (std::size_t t = 0; t < threads; ++t) {
      readers.emplace_back([&, t] { sums[t] = sum_of(words.subspan(t * share, share)); });
    }
    for (std::thread& reader : readers) reader.join();
    for (const std::uint64_t sum : sums) sink = sink + sum;
  });
  return static_cast<double>(buffer.bytes()) / seconds / 1e9;
}

/// Multiply-adds x 2 of one token in all layers, without attention over keys.
double layer_flops(const ModelConfig& c) {
  const double q = static_cast<double>(c.heads) * c.head_dim, kv = static_cast<double>(c.kv_heads) * c.head_dim;
  return c.layers * (4.0 * c.width * q + 4.0 * c.width * kv + 6.0 * c.width * c.ffn_width);
}

class Rates {
 public:
  Rates(Backend& backend, const Model& model, bool quick)
      : backend_(backend), model_(model), forward_(backend, model), quick_(quick) {}

  BenchPrefill prefill(std::int32_t tokens, double gemm_limit) {
    KvLayout layout = model_.kv_layout();
    layout.raw_keys = true;  // decode() copies from it
    prompt_.emplace(backend_, layout, tokens);
    StepRows rows;
    const std::int32_t index = rows.add_cache(&*prompt_);
    for (std::int32_t i = 0; i < tokens; ++i) rows.add_row(index, i, (i * 37 + 11) % model_.config.vocabulary);
    rows.logits_rows.push_back(tokens - 1);
    const double seconds = median_seconds([&] { forward_.run(rows); }, quick_);
    prompt_->commit(tokens);
    const ModelConfig& c = model_.config;
    const double attention = 4.0 * c.layers * c.heads * c.head_dim * tokens * (tokens + 1) / 2.0;
    const double flops = layer_flops(c) * tokens + attention + 2.0 * c.width * c.vocabulary;
    return {tokens, tokens / seconds, flops / seconds / 1e9 / gemm_limit};
  }

  /// Behind prefill(): all sequences begin with copies of its tokens. Plain steps and recording ones take turns.
  BenchDecode decode(std::int32_t sequences, double bandwidth_limit) {
    const std::int32_t depth = prompt_->length();
    const Segment text(backend_, *prompt_, 0, depth, std::vector<TokenId>(static_cast<std::size_t>(depth)));
    KvLayout recording = model_.kv_layout();
    recording.raw_keys = recording.received = true;
    recording.hidden_width = model_.config.width;
    recording.hidden_layer = 1;
    Step plain(*this, model_.kv_layout(), text, sequences), recorded(*this, recording, text, sequences);
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
    const double table =
        model_.config.tied_embeddings ? 0.0 : static_cast<double>(model_.weights.embedding->bytes);  // not read
    const double kv = static_cast<double>(depth) * sequences * static_cast<double>(text.bytes()) / depth;
    const double bytes = static_cast<double>(model_.weights.bytes) - table + kv;
    return {depth, sequences, sequences / step, bytes / step / 1e9 / bandwidth_limit, median(std::move(ratios)) - 1.0};
  }

 private:
  /// One decode step of sequences that hold copies of a text.
  class Step {
   public:
    Step(Rates& rates, const KvLayout& layout, const Segment& text, std::int32_t sequences) : forward_(rates.forward_) {
      const std::int32_t depth = text.length();
      caches_.reserve(static_cast<std::size_t>(sequences));
      for (std::int32_t i = 0; i < sequences; ++i) {
        KvCache& cache = caches_.emplace_back(rates.backend_, layout, depth + 1);
        place(rates.backend_, rates.model_.rope, cache, 0, text, 0, depth);
        rows_.add_row(rows_.add_cache(&cache), depth, (i * 37 + 65) % rates.model_.config.vocabulary);
        rows_.logits_rows.push_back(i);
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
  bool quick_;
  std::optional<KvCache> prompt_;
};

}  // namespace

MachineLimits measure_limits(Backend& backend, DType dtype) {
  return {gemm_gflops(backend, dtype), bandwidth_gbs(backend)};
}

RowCosts measure_row_costs(Backend& backend, const Model& model, const std::function<bool()>& stopped) {
  RowCosts costs;
  const std::int32_t depth = std::min(kDepth, model.options.context / 2);
  constexpr std::int32_t kMost = 256;
  costs.depth = depth;
  Forward forward(backend, model);
  KvCache decoding(backend, model.kv_layout(), depth + 1), other(backend, model.kv_layout(), depth + kMost);
  const auto token = [&](std::int32_t at) { return (at * 37 + 11) % model.config.vocabulary; };
  for (KvCache* cache : {&decoding, &other}) {
    StepRows prompt;
    const std::int32_t index = prompt.add_cache(cache);
    for (std::int32_t at = 0; at < depth; ++at) prompt.add_row(index, at, token(at));
    forward.run(prompt);
    cache->commit(depth);
  }
  for (const std::int32_t rows : {0, 1, 2, 4, 8, 11, 16, 24, 32, 48, 64, 96, 128, 192, kMost}) {
    if (stopped()) break;
    StepRows step;
    step.add_row(step.add_cache(&decoding), depth, token(depth));
    step.logits_rows.push_back(0);
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

void measure_rates(BenchResult& result, Backend& backend, const Model& model, bool quick, const BenchOptions& options) {
  const auto step = [&](const std::string& what) {
    if (options.on_progress) options.on_progress(what);
    return !options.stop.stop_requested();
  };
  Rates rates(backend, model, quick);
  const std::int32_t depth = std::min(kDepth, model.options.context - 1);
  for (const std::int32_t tokens : {std::min(64, depth), depth}) {
    if (!step(fmt::format("prefill of {} tokens", tokens))) return;
    result.prefill.push_back(rates.prefill(tokens, result.gemm_gflops));
  }
  for (const std::int32_t sequences : {1, 4, 16}) {
    if (!step(fmt::format("decode of {} sequences", sequences))) return;
    result.decode.push_back(rates.decode(sequences, result.bandwidth_gbs));
  }
}

}  // namespace baton::inline v1
