// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

namespace baton::bench {
namespace {

/// Four streams, so that the hardware's prefetcher is not what is measured.
std::uint64_t sum(const std::uint64_t* data, std::size_t count) {
  constexpr std::size_t kStreams = 4, kLine = 8;
  const std::size_t share = count / kStreams;
  std::uint64_t sums[kLine] = {};
  for (std::size_t i = 0; i + kLine <= share; i += kLine) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      for (std::size_t lane = 0; lane < kLine; ++lane) sums[lane] += data[stream * share + i + lane];
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
}

}  // namespace

std::string sgemm_kernels() { return openblas_get_corename(); }

void use_best_sgemm(char** arguments) {
#if defined(__x86_64__)
  const std::string kernels = sgemm_kernels();
  if (kernels != "Prescott" || std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  const char* best = __builtin_cpu_supports("avx512f") ? "SkylakeX"
                     : __builtin_cpu_supports("avx2")  ? "Haswell"
                                                       : nullptr;
  if (best == nullptr) return;
  setenv("OPENBLAS_CORETYPE", best, 1);
  execv("/proc/self/exe", arguments);  // returns only when it fails; then the old kernels it is
#endif
}

double sgemm_seconds(std::int64_t rows, std::int64_t width, std::int64_t depth, int threads, const Options& options,
                     const std::function<void()>& before) {
  openblas_set_num_threads(threads);
  const auto x = random_floats(static_cast<std::size_t>(rows * depth));
  const auto w = random_floats(static_cast<std::size_t>(width * depth));
  std::vector<float> out(static_cast<std::size_t>(rows * width));
  const int m = static_cast<int>(rows), n = static_cast<int>(width), k = static_cast<int>(depth);
  const auto multiply = [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x.data(), k, w.data(), k, 0, out.data(), n);
  };
  return median_seconds(options, multiply, before);
}

double read_bandwidth(Backend& backend, int threads, const Options& options) {
  const Buffer buffer = backend.allocate(std::size_t{512} << 20);
  std::memset(buffer.data(), 1, buffer.bytes());
  const std::span memory(reinterpret_cast<const std::uint64_t*>(buffer.data()), buffer.bytes() / sizeof(std::uint64_t));
  volatile std::uint64_t sink = 0;
  const double seconds = median_seconds(options, [&] {
    const std::size_t share = memory.size() / static_cast<std::size_t>(threads);
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] { sums[i] = sum(memory.data() + static_cast<std::size_t>(i) * share, share); });
    }
    for (std::thread& reader : readers) reader.join();
    for (const std::uint64_t value : sums) sink = sink + value;
  });
  return static_cast<double>(buffer.bytes()) / seconds;
}

}  // namespace baton::bench
