// SPDX-License-Identifier: Apache-2.0
// The only place that knows every backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/backend/backend.h"

namespace baton {

struct BackendOptions {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int threads = 0;              // CPU threads; 0: one per core
  std::string fallback = {};    // of device cpu, where it takes a GPU's place: why
};

/// Returns a backend for the device. Throws BackendError that says what is missing when the device is unknown or cannot
/// be used. `auto` takes the CPU where there is no GPU, or where the GPU cannot be used: then BackendInfo::fallback
/// says why.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

// The measured peak rates of a machine, which prefill and decode are compared with.

struct MachineLimits {
  double gemm_gflops = 0;    // of products, in GFLOP/s
  double bandwidth_gbs = 0;  // of memory, in GB/s
  std::string products;      // what they are: "bytes in tiles", "bf16 by cuBLAS"
};

/// What a model asks of a machine.
struct LimitsToMeasure {
  std::int64_t bytes = 0;   // that a decode step reads of weights: a cache that holds them counts
  bool quantized = false;   // some products take bytes
  bool bf16_pairs = false;  // some products take pairs of bf16
};

/// Measures the device behind the backend, by the best of ten passes. On the CPU, plain loops on all threads: the
/// fastest kind of product that the model's can take, from registers, and reads of as many bytes as a decode step
/// reads, in as many streams as are fastest. On a GPU: cuBLAS's bf16 product of random numbers, and a copy within the
/// device's memory, counting bytes read and written. Throws BackendError when memory is short.
MachineLimits measure_limits(Backend& backend, const LimitsToMeasure& of);

/// The CPU's measurement, for any backend whose buffers the host can read.
MachineLimits measure_host_limits(Backend& backend, const LimitsToMeasure& of);

// A device against a reference, in seconds: whether its operations, copies and replays give what they should.

struct SelfTestPart {
  std::string name;     // "attention, heads of 64"
  std::string problem;  // what went wrong, or empty
  double milliseconds = 0;
};

/// Runs one part, which returns what went wrong or an empty text. An exception is its problem, too.
SelfTestPart run_self_test_part(std::string name, const std::function<std::string()>& part);

/// Runs every part on both backends and reports each. `reference` is the CPU. Threads: one caller at a time,
/// as of the backends.
void run_self_test(Backend& subject, Backend& reference, const std::function<void(const SelfTestPart&)>& on_part);

}  // namespace baton
