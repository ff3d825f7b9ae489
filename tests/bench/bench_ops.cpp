// SPDX-License-Identifier: Apache-2.0
// baton_bench_ops [FILTER] [--threads N] [--seconds S] [--cpu-time] [--json]: time, GFLOP/s and GB/s of the operations
// on the CPU, beside OpenBLAS sgemm and the read bandwidth measured in the same run. Medians; --cpu-time (of one
// thread) for a machine with other load.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "engine/cpu/cpu.h"
#include "machine.h"
#include "measure.h"

namespace baton::bench {
namespace {

void print(const Options& options, const Result& result) {
  const double gflops = result.flops / result.seconds * 1e-9;
  const double gbytes = result.bytes / result.seconds * 1e-9;
  const double ratio = result.baseline_seconds / result.seconds;
  if (options.json) {
    fmt::print(R"({{"op": "{}", "shape": "{}", "ms": {:.5f}, "gflops": {:.2f}, "gbytes": {:.2f}, "vs_sgemm": {:.3f}}})"
               "\n",
               result.name, result.shape, result.seconds * 1e3, gflops, gbytes, ratio);
  } else {
    fmt::print("{:<16} {:<26} {:>10.4f} {:>9.1f} {:>8.1f} {:>9}\n", result.name, result.shape, result.seconds * 1e3,
               gflops, gbytes, ratio == 0 ? "" : fmt::format("{:.2f}", ratio));
  }
  std::fflush(stdout);
}

bool wanted(const Options& options, std::string_view name) {
  return name.find(options.filter) != std::string_view::npos;
}

void bench_machine(const Options& options, Backend& backend, int threads) {
  for (int n = 1; n <= threads; n = n == 1 ? threads : threads + 1) {
    Result sgemm{"sgemm", fmt::format("512x4096x4096 {} threads", n)};
    sgemm.seconds = sgemm_seconds(512, 4096, 4096, n, options);
    sgemm.flops = 2.0 * 512 * 4096 * 4096;
    print(options, sgemm);
    Result read{"read", fmt::format("512 MiB {} threads", n)};
    read.bytes = 512.0 * (1 << 20);
    read.seconds = read.bytes / read_bandwidth(backend, n, options);
    print(options, read);
    if (threads == 1) break;
  }
}

void bench_matmul(const Options& options, Backend& backend, int threads, Activations activations) {
  const std::string name = activations == Activations::bf16 ? "matmul bf16 bf16" : "matmul bf16";
  if (!wanted(options, name)) return;
  struct Weight {
    std::int64_t width, depth;
  };
  CacheFlush flush;
  for (const auto [width, depth] : {Weight{1024, 256}, {3072, 1024}, {4096, 4096}, {14336, 4096}}) {
    const auto host = random_floats(static_cast<std::size_t>(width * depth));
    const ConstTensorView parts[] = {view_of(host.data(), width, depth)};
    const auto w = backend.load_matrix(parts, DType::bf16, activations);
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 64, 256, 512}) {
      const auto x = random_floats(static_cast<std::size_t>(rows * depth));
      std::vector<float> out(static_cast<std::size_t>(rows * width));
      Result result{name, fmt::format("T {} N {} C {}", rows, width, depth)};
      result.flops = 2.0 * static_cast<double>(rows * width * depth);
      result.bytes = 2.0 * static_cast<double>(width * depth);
      const auto multiply = [&] {
        backend.matmul(view_of(out.data(), rows, width), view_of(x.data(), rows, depth), *w, {});
      };
      const auto before = [&] {
        if (rows <= 16) flush();
      };
      result.seconds = median_seconds(options, multiply, before);
      result.baseline_seconds = sgemm_seconds(rows, width, depth, threads, options, before);
      print(options, result);
    }
  }
}

/// Weights of block types, of the shapes of a model of 0.5B and one of 7B.
void bench_quantized(const Options& options, Backend& backend) {
  struct Weight {
    std::int64_t width, depth;
  };
  CacheFlush flush;
  for (const BlockType type : {BlockType::q8_0, BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1,
                               BlockType::q4_k, BlockType::q5_k, BlockType::q6_k, BlockType::q2_k, BlockType::q3_k,
                               BlockType::iq4_nl, BlockType::iq4_xs, BlockType::mxfp4}) {
    const std::string name = fmt::format("matmul {}", format_of(type).name);
    if (!wanted(options, name)) continue;
    for (const auto [width, depth] : {Weight{9728, 768}, {4096, 4096}}) {
      auto blocks = random_bytes(static_cast<std::size_t>(width * row_bytes(type, depth)));
      if (type == BlockType::mxfp4) {  // no scales so small that products are denormal
        for (std::size_t i = 0; i < blocks.size(); i += sizeof(BlockMXFP4)) blocks[i] |= std::byte{0x40};
      }
      const BlockView part{blocks, type, width, depth};
      const auto w = backend.load_quantized_matrix({&part, 1}, Activations::int8);
      for (const std::int64_t rows : {1, 4, 8, 128, 512}) {
        const auto x = random_floats(static_cast<std::size_t>(rows * depth));
        std::vector<float> out(static_cast<std::size_t>(rows * width));
        Result result{name, fmt::format("T {} N {} C {}", rows, width, depth)};
        result.flops = 2.0 * static_cast<double>(rows * width * depth);
        result.bytes = static_cast<double>(w->bytes);
        result.seconds = median_seconds(
            options, [&] { backend.matmul(view_of(out.data(), rows, width), view_of(x.data(), rows, depth), *w, {}); },
            [&] {
              if (rows <= 8) flush();
            });
        print(options, result);
      }
    }
  }
}

/// `rows` new rows at the end of each of `sequences` caches of `length` positions.
void bench_attention(const Options& options, Backend& backend, std::int32_t sequences, std::int32_t rows,
                     std::int32_t length, std::int32_t heads, const KvShape& shape) {
  const std::string name = rows == 1 ? "attention decode" : "attention fill";
  if (!wanted(options, name)) return;
  const std::int32_t capacity = (length + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  const std::size_t bytes = backend.kv_slab_bytes(shape, capacity);
  std::vector<Buffer> buffers;
  std::vector<KvSlab> slabs;
  std::vector<std::int32_t> sequence, position;
  for (std::int32_t s = 0; s < sequences; ++s) {
    buffers.push_back(backend.allocate(2 * bytes));
    slabs.push_back({buffers.back().data(), buffers.back().data() + bytes, capacity});
    std::memset(buffers.back().data(), 0x3c, 2 * bytes);
    for (std::int32_t i = length - rows; i < length; ++i) {
      sequence.push_back(s);
      position.push_back(i);
    }
  }
  const std::vector<std::int32_t> begin(position.size(), 0);
  const auto total = static_cast<std::int64_t>(position.size());
  const std::int64_t cols = std::int64_t{heads} * shape.head_dim;
  const auto q = random_floats(static_cast<std::size_t>(total * cols));
  std::vector<float> out(q.size());
  double keys = 0;
  for (const std::int32_t p : position) keys += p + 1;
  Result result{
      name, fmt::format("B {} T {} S {} H {}/{} D {}", sequences, rows, length, heads, shape.kv_heads, shape.head_dim)};
  result.flops = 4.0 * keys * static_cast<double>(cols);
  result.bytes = 2.0 * sequences * static_cast<double>(bytes);
  CacheFlush flush;
  result.seconds = median_seconds(
      options,
      [&] {
        backend.kv().attention(view_of(out.data(), total, cols), view_of(q.data(), total, cols), slabs, shape,
                               {sequence, position, begin}, 0.125f);
      },
      [&] {
        if (rows == 1) flush();
      });
  print(options, result);
}

void bench_rows(const Options& options, Backend& backend) {
  for (const std::int64_t rows : {1, 256}) {
    const std::int64_t cols = 4096;
    auto x = random_floats(static_cast<std::size_t>(rows * 2 * cols));
    std::vector<float> out(static_cast<std::size_t>(rows * cols));
    const std::vector<float> weight(static_cast<std::size_t>(cols), 1.0f);
    const auto time = [&](const std::string& name, double floats, const std::function<void()>& run) {
      if (!wanted(options, name)) return;
      Result result{name, fmt::format("T {} C {}", rows, cols)};
      result.bytes = floats * 4 * static_cast<double>(rows * cols);
      result.seconds = median_seconds(options, run);
      print(options, result);
    };
    const TensorView wide = view_of(x.data(), rows, 2 * cols);
    const TensorView narrow = view_of(out.data(), rows, cols);
    time("rms_norm", 2, [&] { backend.rms_norm(narrow, wide.col_range(0, cols), weight, 1e-6f); });
    time("silu_mul", 3, [&] { backend.silu_mul(narrow, wide); });
  }
}

int run(const Options& options) {
  const auto backend = make_cpu_backend(options.threads);
  const int threads = backend->info().threads;
  if (!options.json) {
    fmt::print("{}; sgemm: OpenBLAS {}\n{:<16} {:<26} {:>10} {:>9} {:>8} {:>9}\n", backend->info().device,
               sgemm_kernels(), "op", "shape", "ms", "GFLOP/s", "GB/s", "vs sgemm");
  }
  bench_machine(options, *backend, threads);
  for (const Activations activations : {Activations::f32, Activations::bf16})
    bench_matmul(options, *backend, threads, activations);
  bench_quantized(options, *backend);
  const KvShape small{4, 64, DType::bf16}, large{8, 128, DType::bf16};
  bench_attention(options, *backend, 1, 2048, 2048, 8, small);
  bench_attention(options, *backend, 1, 2048, 2048, 32, large);
  bench_attention(options, *backend, 1, 64, 2048, 32, large);
  bench_attention(options, *backend, 1, 1, 2048, 8, small);
  bench_attention(options, *backend, 1, 1, 8192, 32, large);
  bench_attention(options, *backend, 8, 1, 2048, 32, large);
  bench_rows(options, *backend);
  return 0;
}

/// The whole of `text` as a number, or std::invalid_argument.
template <class Number>
Number number(std::string_view option, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw std::invalid_argument(fmt::format("{}: '{}' is not a number", option, text));
  }
  return value;
}

Options parse(std::span<char*> arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const auto value = [&] {
      if (i + 1 == arguments.size()) throw std::invalid_argument(fmt::format("{} needs a value", argument));
      return std::string_view(arguments[++i]);
    };
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--cpu-time") {
      options.cpu_time = true;
    } else if (argument == "--threads") {
      options.threads = number<int>(argument, value());
    } else if (argument == "--seconds") {
      options.seconds = number<double>(argument, value());
    } else if (!argument.starts_with("-")) {
      options.filter = argument;
    } else {
      throw std::invalid_argument(fmt::format("unknown option {}", argument));
    }
  }
  if (options.cpu_time && options.threads != 1) throw std::invalid_argument("--cpu-time goes with --threads 1");
  return options;
}

}  // namespace
}  // namespace baton::bench

int main(int count, char** arguments) {
  try {
    baton::bench::use_best_sgemm(arguments);
    return baton::bench::run(baton::bench::parse(std::span(arguments + 1, static_cast<std::size_t>(count - 1))));
  } catch (const std::exception& error) {
    fmt::print(
        stderr,
        "baton_bench_ops: {}\nusage: baton_bench_ops [FILTER] [--threads N] [--seconds S] [--cpu-time] [--json]\n",
        error.what());
    return 2;
  }
}
