#include "machine.h"

#include <cblas.h>

#include <thread>

#include "measure.h"

namespace baton::bench {
namespace {

std::uint64_t sum(const std::uint64_t* data, std::size_t count) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += data[i + lane];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

}  // namespace

double sgemm_seconds(std::int64_t rows, std::int64_t width, std::int64_t depth, int threads, double budget) {
  openblas_set_num_threads(threads);
  const auto x = random_floats(static_cast<std::size_t>(rows * depth));
  const auto w = random_floats(static_cast<std::size_t>(width * depth));
  std::vector<float> out(static_cast<std::size_t>(rows * width));
  const int m = static_cast<int>(rows), n = static_cast<int>(width), k = static_cast<int>(depth);
  return median_seconds(budget, [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x.data(), k, w.data(), k, 0, out.data(), n);
  });
}

double read_bandwidth(int threads, double budget) {
  const std::vector<std::uint64_t> memory(std::size_t{64} << 20, 1);
  volatile std::uint64_t sink = 0;
  const double seconds = median_seconds(budget, [&] {
    const std::size_t share = memory.size() / static_cast<std::size_t>(threads);
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] { sums[i] = sum(memory.data() + static_cast<std::size_t>(i) * share, share); });
    }
    for (std::thread& reader : readers) reader.join();
    for (const std::uint64_t value : sums) sink = sink + value;
  });
  return static_cast<double>(memory.size() * sizeof(std::uint64_t)) / seconds;
}

}  // namespace baton::bench
