// SPDX-License-Identifier: Apache-2.0
// baton_bench_engine: prefill and decode of whole models beside what the machine can do, measured in the same run.
// Prefill is bound by multiply-adds (share of OpenBLAS sgemm), decode by reading the weights (share of the machine's
// read bandwidth). The hash of the last logits tells two runs apart that sampled text would not.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/system/process.h"
#include "engine/cpu/cpu.h"
#include "engine/model/forward.h"
#include "engine/model/model.h"
#include "tests/bench/machine.h"
#include "tests/bench/measure.h"

namespace {

using namespace baton;

const char* const kShapes[] = {"nano", "smollm2-135m", "qwen3-0.6b"};

struct Limits {
  double gemm_gflops;
  double bandwidth_gbs;
};

/// Multiply-adds x 2 of one token without attention over keys; the head counts only where logits are asked for.
double layer_flops(const ModelConfig& c) {
  const double q = static_cast<double>(c.heads) * c.head_dim, kv = static_cast<double>(c.kv_heads) * c.head_dim;
  return c.layers * (4.0 * c.width * q + 4.0 * c.width * kv + 6.0 * c.width * c.ffn_width);
}

class Bench {
 public:
  Bench(const Shape& shape, int threads, const Limits& limits, const bench::Options& options)
      : shape_(shape),
        limits_(limits),
        options_(options),
        backend_(make_cpu_backend(threads)),
        model_(make_random_model(*backend_, shape, 1, {})),
        forward_(*backend_, *model_) {}

  void run() {
    for (const int tokens : {64, 512, 1024}) prefill(tokens);
    for (const int rows : {1, 4, 16}) {
      for (const int depth : {128, 1024}) decode(depth, rows);
    }
  }

 private:
  KvCache cache(int positions) { return {*backend_, model_->kv_layout(), positions}; }

  static void add_prompt(StepRows& rows, KvCache& into, int tokens) {
    const std::int32_t index = rows.add_cache(&into);
    for (int i = 0; i < tokens; ++i) rows.add_row(index, i, (i * 37 + 11) % 256);
    rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size() - 1));
  }

  void prefill(int tokens) {
    KvCache one = cache(tokens);
    StepRows rows;
    add_prompt(rows, one, tokens);
    std::uint64_t hash = 0;
    const double seconds = bench::median_seconds(options_, [&] { hash = hash_of(forward_.run(rows)); });
    const ModelConfig& c = model_->config;
    const double attention = 4.0 * c.layers * c.heads * c.head_dim * tokens * (tokens + 1) / 2.0;
    const double flops = layer_flops(c) * tokens + attention + 2.0 * c.width * c.vocabulary;
    print("prefill", fmt::format("{} tokens", tokens), tokens / seconds, flops / seconds / 1e9, "GFLOP/s",
          limits_.gemm_gflops, hash);
  }

  void decode(int depth, int sequences) {
    std::vector<KvCache> caches;
    for (int i = 0; i < sequences; ++i) caches.push_back(cache(depth + 1));
    for (KvCache& one : caches) {
      StepRows prompt;
      add_prompt(prompt, one, depth);
      forward_.run(prompt);
    }
    StepRows rows;
    for (KvCache& one : caches) {
      rows.add_row(rows.add_cache(&one), depth, 65);
      rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size() - 1));
    }
    std::uint64_t hash = 0;
    const double seconds = bench::median_seconds(options_, [&] { hash = hash_of(forward_.run(rows)); });
    const double kv_bytes = static_cast<double>(model_->kv_layout().token_bytes()) * depth * sequences;
    const double bytes = static_cast<double>(model_->weights.bytes) + kv_bytes;
    print("decode", fmt::format("{} x depth {}", sequences, depth), sequences / seconds, bytes / seconds / 1e9, "GB/s",
          limits_.bandwidth_gbs, hash);
  }

  static std::uint64_t hash_of(std::span<const float> logits) {
    std::uint64_t hash = 1469598103934665603ull;
    for (const float value : logits) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 1099511628211ull;
    }
    return hash;
  }

  void print(const char* phase, const std::string& what, double tokens_per_s, double rate, const char* unit,
             double limit, std::uint64_t hash) const {
    if (options_.json) {
      fmt::print(
          "{{\"shape\": \"{}\", \"phase\": \"{}\", \"what\": \"{}\", \"tokens_per_s\": {:.1f}, \"rate\": {:.2f}, "
          "\"unit\": \"{}\", \"share\": {:.3f}, \"logits_hash\": \"{:016x}\"}}\n",
          shape_.name, phase, what, tokens_per_s, rate, unit, rate / limit, hash);
    } else {
      fmt::print("{:<13} {:<8} {:<16} {:>10.1f} tokens/s {:>8.1f} {:<8} {:>4.0f} % of the machine  logits {:016x}\n",
                 shape_.name, phase, what, tokens_per_s, rate, unit, 100 * rate / limit, hash);
    }
  }

  Shape shape_;
  Limits limits_;
  bench::Options options_;
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Model> model_;
  Forward forward_;
};

}  // namespace

int main(int argc, char** argv) {
  bench::use_best_sgemm(argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // lines as they come, into files too
  bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--threads" && i + 1 < argc) {
      options.threads = std::atoi(argv[++i]);
    } else if (argument == "--seconds" && i + 1 < argc) {
      options.seconds = std::atof(argv[++i]);
    } else if (argument.starts_with("--")) {
      fmt::print(stderr,
                 "usage: baton_bench_engine [SHAPE] [--threads N] [--seconds S] [--json]\nshapes: nano, smollm2-135m, "
                 "qwen3-0.6b (default: all)\n");
      return argument == "--help" ? 0 : 2;
    } else {
      options.filter = argument;
    }
  }
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  const double gemm = bench::sgemm_seconds(1024, 1024, 1024, threads, options);
  const auto backend = make_cpu_backend(threads);
  const Limits limits{2.0 * 1024 * 1024 * 1024 / gemm / 1e9, bench::read_bandwidth(*backend, threads, options) / 1e9};
  fmt::print(stderr, "{} threads; the machine: sgemm {:.0f} GFLOP/s, read {:.1f} GB/s\n", threads, limits.gemm_gflops,
             limits.bandwidth_gbs);
  for (const std::string name : kShapes) {
    if (name.find(options.filter) == std::string::npos) continue;
    Bench(find_shape(name), threads, limits, options).run();
  }
  return 0;
}
