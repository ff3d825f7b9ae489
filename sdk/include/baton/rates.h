// SPDX-License-Identifier: Apache-2.0
// How fast a model runs on this machine: prompts, decode steps, and prompt rows in decode steps.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace baton::inline v1 {

/// Prefill of the bare model: one prompt of `tokens` tokens, without any reuse.
struct PrefillRate {
  std::int64_t tokens = 0;
  double tokens_per_s = 0;
  double share = 0;  // fraction of the machine's arithmetic limit; 0: the limit was not measured
};

/// A decode step of the bare model: `rows` sequences, each `depth` tokens long.
struct DecodeRate {
  std::int64_t depth = 0;   // tokens in each sequence's cache
  std::int64_t rows = 0;    // sequences
  double tokens_per_s = 0;  // for all of them together
  double share = 0;      // fraction of the memory bandwidth, which weights in a CPU's cache can exceed; 0: not measured
  double recording = 0;  // fraction of a step's time that recording for a later hand-over adds
};

/// A decode step to measure.
struct DecodeStep {
  int rows = 1;   // sequences in the step
  int depth = 0;  // tokens in the cache of each
};

/// The cost of prompt rows in a decode step; prompts are computed in such rows while agents decode.
struct RowCosts {
  struct Step {
    std::int64_t rows = 0;  // prompt rows of another sequence, as deep as the one that decodes
    double ms = 0;          // time of the whole step
  };
  std::int64_t depth = 0;   // tokens in both sequences' caches
  std::vector<Step> steps;  // increasing; the first step has no prompt rows
  double slowdown = 0.67;   // the bound that these rows keep on average
  std::int64_t knee = 0;    // the largest number of rows whose step stays within the bound
};

/// Which model is measured, on which device.
struct RateOptions {
  std::string model{};         // a folder or a bare name
  std::vector<int> prefill{};  // prompt lengths in tokens; each must fit the model's context
  std::vector<DecodeStep> decode{};
  std::string dtype = "bf16";       // type of weights and KV: bf16, f32
  std::string activations = "f32";  // type of inputs to products with bf16 weights on the CPU: f32, bf16
  std::string device = "auto";      // auto, cpu, cuda, cuda:N
  int threads = 0;                  // CPU threads; 0: one per core
  /// Called with a short line for each thing that is being measured, on the caller's thread.
  std::function<void(const std::string& what)> on_progress{};
  std::stop_token stop{};  // ends the measurement before its next step
};

/// What was measured, in the order asked for.
struct ModelRates {
  std::string device;
  int threads = 0;
  std::vector<PrefillRate> prefill;
  std::vector<DecodeRate> decode;
  bool complete = true;  // false: stopped on request
};

/// Measures prompts and decode steps of a model, on the caller's thread. Throws InputError, ResourceError.
ModelRates measure_rates(const RateOptions& options);

/// Measures what prompt rows in a decode step of the model cost, on the caller's thread; the lengths in `options` are
/// not used. Throws ResourceError.
RowCosts measure_rows(const RateOptions& options);

}  // namespace baton::inline v1
