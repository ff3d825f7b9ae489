// SPDX-License-Identifier: Apache-2.0
// Benchmark: the time to first token of a chain of agents under each method of handing KV over, next to what this
// machine can do (docs/lab.md, `baton-lab bench`).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <baton/rates.h>

namespace baton::inline v1::lab {

/// Agent k's prompt: its own role text, the question, and the answers of agents 1 to k - 1, with short separators. The
/// texts are random tokens: what a step costs does not depend on them.
struct BenchOptions {
  std::string shape{};  // a name of bench_shapes(): random weights
  std::string model{};  // or a model folder or bare name; exactly one of the two
  int layers = 0;       // how many of the shape's layers are made; 0: all
  int agents = 5;
  std::vector<int> prefix{128};  // tokens of each role text
  int question = 512;            // tokens
  /// Tokens of each answer. Where this or `prefix` has several, every pair is measured, one model serving all.
  std::vector<int> output{256};
  /// Names of bench_methods(); empty: all that one pass can measure. Droidspeak, which is for two models, is measured
  /// with one: all tokens are recomputed in the layers of rectify. With "lockstep" every method also runs the whole
  /// chain of agents once and decodes their answers.
  std::vector<std::string> methods{};      // "none" alone: no agents, only prefill and decode
  std::vector<int> prefill{};              // prompt lengths of the bare model; empty: 64, 512
  std::vector<DecodeStep> decode{};        // steps of the bare model; empty: 1, 4 and 16 sequences, 512 tokens deep
  bool rows = false;                       // also measure what prompt rows in a decode step cost (RowCosts)
  std::vector<int> learned{2, 5, 10, 20};  // texts of each placeholder, for a method that learns; measured with each
  /// The fraction of the reused tokens that epic, cacheblend and rectify recompute; each method is measured with each
  /// value.
  std::vector<double> select{0.18};
  /// With "lockstep": the methods under which the whole chain is run; empty: all. "none" alone: the chain is not run,
  /// and the first tokens of lockstep are those of prompts that are computed ahead as far as they can be.
  std::vector<std::string> row_methods{};
  /// Reused texts are in host memory when an agent begins, and its time to first token includes their upload.
  /// InputError where the device has no memory of its own.
  bool from_host = false;
  bool memory = false;  // also measure the bytes that each method holds per token (BenchMemory)
  /// The first, detection and last layer of rectify; without a value: those of the model's profile, those published for
  /// the shape, or a guess of the same proportions.
  std::optional<std::array<int, 3>> layers_range{};
  std::string dtype = "bf16";       // of weights and KV: bf16, f32
  std::string activations = "f32";  // of products with bf16 weights on the CPU: f32, bf16
  std::string device = "auto";
  int threads = 0;         // CPU threads; 0: one per core
  double slowdown = 0;     // as in EngineOptions
  std::uint64_t seed = 1;  // of weights and tokens
  int repeat = 0;          // 0: 3, or 1 above a billion weights
  /// Called with a short line for each thing that is being measured, on the caller's thread.
  std::function<void(const std::string& what)> on_progress{};
  std::stop_token stop{};  // ends the benchmark before its next step
};

/// Parts of the time to first token, milliseconds.
struct BenchBreakdown {
  double match = 0;          // finding prefixes and segments, building the schedule
  double copy = 0;           // copying and rotating them, and waiting for uploads from host memory
  double full_layers = 0;    // layers before the sparse ones; without sparse layers: all layers
  double detect = 0;         // comparing, and choosing tokens
  double sparse_layers = 0;  // layers in which only chosen tokens and new text run
  double tail = 0;           // layers after the sparse ones, and the logits
  double other = 0;          // the rest of the time to first token
};

/// All numbers of the run whose ttft_ms is the median of the repeats.
struct BenchAgent {
  int agent = 0;  // from 1
  std::int64_t prompt_tokens = 0;
  double ttft_ms = 0;        // submit to the first token, everything included
  double kv_reuse_rate = 0;  // fraction of the (token, layer) entries that was not computed
  BenchBreakdown breakdown_ms;
  // Of the whole chain; 0 where it was not run.
  double decode_ms_per_token = 0;
  double ahead_rate = 0;    // fraction of the entries computed before all of the prompt was known (lockstep)
  double text_pass_ms = 0;  // of lockstep: a pass over the text behind the last placeholder alone
};

/// One method on the chain of agents. Times in milliseconds.
struct BenchMethod {
  std::string method;
  int learned = 0;    // texts of each placeholder, for a method that learns
  double select = 0;  // the fraction that is recomputed, where several were measured
  std::vector<BenchAgent> agents;
  double wall_ms = 0;  // all agents one after the other, to the end of each request; of lockstep: the chain
  double row_ms = 0;   // the whole chain, from the first request to the last token of the last answer; 0: not run
};

/// The chain of agents with one length of role texts and answers.
struct BenchCase {
  int prefix = 0;
  int output = 0;
  std::vector<BenchMethod> methods;  // in the order asked for
  std::string error;                 // why there are no methods: out of memory; otherwise empty
};

/// Bytes that a method holds per token, as the engine counts them; 0: nothing.
struct BenchMemory {
  std::string method;
  double cache = 0;            // of the prompt of a running agent whose answer is not handed on
  double cache_recording = 0;  // of the prompt of a running agent whose answer is handed on
  double ahead = 0;            // of a prompt that is computed ahead (lockstep), before its request
  // Segments of an answer that are kept for later prompts; those of other texts have no entropy.
  double keys_values = 0;
  double hidden = 0;    // a state at the input of rectify's first layer
  double received = 0;  // attention
  double entropy = 0;
  double ids = 0;
  double learned = 0;  // of each token that the method has learned (host memory)
};

/// All that a benchmark measured, with the settings it was measured with. Sizes in bytes, times in milliseconds.
struct BenchResult {
  std::string device;
  std::string shape;  // or the model's name
  std::string dtype;
  std::string activations;
  int threads = 0;
  int layers = 0;
  std::array<int, 3> layers_range{};
  int repeat = 0;
  // Limits of this machine, the best of ten passes: on the CPU plain loops of the fastest products that the model can
  // take, and of reads of as many bytes as a decode step reads, on all threads; on a GPU a bf16 product by cuBLAS, and
  // a copy within its memory (bytes read and written).
  std::string products;  // what is multiplied: "bytes in tiles"
  double gemm_gflops = 0;
  double bandwidth_gbs = 0;
  double load_ms = 0;       // starting the device and reading the model, or making its random weights
  std::string logits_hash;  // of the first-token logits of method full, all agents; empty without full
  std::vector<PrefillRate> prefill;
  std::vector<DecodeRate> decode;
  std::vector<BenchMethod> methods;  // in the order asked for; empty where there are cases
  std::vector<BenchCase> cases;      // where prefix or output has several values: outputs within prefixes
  std::vector<BenchMemory> memory;   // where asked for
  std::int64_t weights_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;       // keys and values
  std::int64_t segment_bytes_per_token = 0;  // of a segment that is handed over: raw keys, values, hidden state
  std::int64_t kv_peak_bytes = 0;
  std::int64_t segments_peak_bytes = 0;
  std::optional<RowCosts> row_costs;  // where asked for
  bool complete = true;               // false: stopped on request; what was not measured by then is missing
};

/// "llama-3.1-8b", "qwen3-0.6b", "qwen2.5-7b", "mistral-7b", "smollm2-135m", "nano".
std::vector<std::string> bench_shapes();

/// The shape's config.json, as a peer needs it to make the same model. Throws InputError for an unknown name.
std::string bench_config(const std::string& shape);

/// The names of all reuse methods (baton/reuse_method.h).
std::vector<std::string> bench_methods();

/// Runs the benchmark on the caller's thread. Throws InputError for an invalid option (what() begins with the option's
/// name) and ResourceError.
BenchResult run_bench(const BenchOptions& options);

}  // namespace baton::inline v1::lab
