// SPDX-License-Identifier: Apache-2.0
// Quantised weights on the CUDA backend: compiled once for the emulated kernels and once for a GPU.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/cpu/quantized/quantized.h"
#include "tests/engine/cuda/host_memory.h"
#include "tests/engine/cuda/models.h"
#include "tests/engine/ops/quantized_cases.h"

namespace baton::test::quantized_test {
namespace {

/// Any of a device's sums, in fp32, of codes that are exact and of inputs rounded to bf16.
void require_product(const Values& out, const Blocks& w, const Values& x, std::span<const float> bias) {
  const auto term = [&](std::int64_t t, std::int64_t n, std::int64_t c) {
    const cpu::Quant quant = cpu::quant_of(w.type, w.view().row(n), c);
    return std::pair(static_cast<double>(quant.quant * quant.scale) * round_to(x.at(t, c), DType::bf16),
                     static_cast<double>(quant.minimum) * round_to(x.at(t, c), DType::bf16));
  };
  const auto exact = [&](std::int64_t t, std::int64_t n) {
    double sum = bias[n];
    for (std::int64_t c = 0; c < w.cols; ++c) sum += term(t, n, c).first + term(t, n, c).second;
    return sum;
  };
  require_close(out, exact, [&](std::int64_t t, std::int64_t n) {
    double terms = std::abs(bias[n]);
    for (std::int64_t c = 0; c < w.cols; ++c) terms += std::abs(term(t, n, c).first) + std::abs(term(t, n, c).second);
    return 8 * kEpsilon * static_cast<float>(terms);
  });
}

/// The backend where weights are unpacked from `rows` rows on, at most `mib` of them at once.
std::unique_ptr<Backend> make_unpacking(const char* rows, const char* mib = "256") {
  ::setenv("BATON_CUDA_UNPACKED_ROWS", rows, 1);
  ::setenv("BATON_CUDA_UNPACKED_MIB", mib, 1);
  auto device = make_backend_under_test();
  ::unsetenv("BATON_CUDA_UNPACKED_ROWS");
  ::unsetenv("BATON_CUDA_UNPACKED_MIB");
  return device;
}

TEST_CASE("quantised products on a device are those of exact weights, with the same bits in any batch", "[quantised]") {
  auto device = make_unpacking("1000");
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(51);
  // Rows beyond 32 go the way of many rows where these outputs fill the device.
  for (const auto& [outputs, batches] :
       {std::pair<std::int64_t, std::vector<std::int64_t>>{37, {8, 9, 33}}, {500, {130}}}) {
    for (const BlockType type : kQuantized) {
      const Blocks w = random_blocks(random, type, outputs, columns_of(type, 11, 2));
      const auto matrix = load(*backend, w);
      const std::vector<float> bias = random.vector(outputs);
      CHECK(matrix->bytes < static_cast<std::size_t>((outputs + 16) * (w.cols + 64) * 5 / 4));
      for (const std::int64_t rows : batches) {
        const Values x = random_activations(random, rows, w.cols);
        const Values all = multiply(*backend, x, *matrix, bias);
        INFO(name_of(type) << ", " << rows << " rows");
        for (std::int64_t t = 0; t<rows; t += rows> 64 ? 13 : 1) {
          Values one(1, w.cols);
          std::ranges::copy(x.row(t), one.data.begin());
          const Values alone = multiply(*backend, one, *matrix, bias);
          require_same_bits(all.row(t), alone.data);
          if (t < 3) require_product(alone, w, one, bias);
        }
      }
    }
  }
}

/// The same of weights that were rounded to bf16.
void require_unpacked_product(const Values& out, std::int64_t first, const Values& w, const Values& x,
                              std::span<const float> bias) {
  const auto terms = [&](std::int64_t t, std::int64_t n, auto&& of) {
    double sum = of(bias[static_cast<std::size_t>(first + n)]);
    for (std::int64_t c = 0; c < w.cols; ++c)
      sum += of(static_cast<double>(round_to(w.at(n, c), DType::bf16)) * round_to(x.at(t, c), DType::bf16));
    return sum;
  };
  Values some(x.rows, w.rows);
  for (std::int64_t t = 0; t < x.rows; ++t) std::copy_n(out.row(t).begin() + first, w.rows, &some.at(t, 0));
  require_close(
      some, [&](std::int64_t t, std::int64_t n) { return terms(t, n, [](double value) { return value; }); },
      [&](std::int64_t t, std::int64_t n) {
        return 32 * kEpsilon * static_cast<float>(terms(t, n, [](double value) { return std::abs(value); }));
      });
}

TEST_CASE("products of many rows on a device are those of quantised weights in bf16", "[quantised]") {
  auto device = make_unpacking("96");
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(55);
  constexpr std::int64_t kRows = 200;
  for (const BlockType type : kQuantized) {
    const std::int64_t cols = columns_of(type, 11, 2);
    const Blocks parts[] = {random_blocks(random, type, 21, cols), random_blocks(random, BlockType::q8_0, 18, cols)};
    const BlockView views[] = {parts[0].view(), parts[1].view()};
    const auto matrix = backend->load_quantized_matrix(views, Activations::int8);
    const std::vector<float> bias = random.vector(39);
    const Values x = random_activations(random, kRows, cols), out = multiply(*backend, x, *matrix, bias);
    INFO(name_of(type));
    require_unpacked_product(out, 0, parts[0].values(), x, bias);
    require_unpacked_product(out, 21, parts[1].values(), x, bias);
  }
}

TEST_CASE("a large quantised weight is unpacked in pieces", "[quantised]") {
  auto device = make_unpacking("2", "1");
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(56);
  constexpr std::int64_t kCols = 1024, kRows = 1024 + 16;  // 2 MiB in bf16, and a panel
  const Blocks w = random_blocks(random, BlockType::q4_0, kRows, kCols);
  const auto matrix = load(*backend, w);
  const std::vector<float> bias = random.vector(kRows);
  const Values x = random_activations(random, 2, kCols), out = multiply(*backend, x, *matrix, bias);
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{340}, std::int64_t{690}, kRows - 20}) {
    Values rows(20, kCols);
    for (std::int64_t n = 0; n < rows.rows; ++n) {
      const std::span row(w.view().row(first + n), static_cast<std::size_t>(row_bytes(w.type, kCols)));
      dequantize(std::span(&rows.at(n, 0), static_cast<std::size_t>(kCols)), row, w.type);
    }
    INFO("outputs from " << first);
    require_unpacked_product(out, first, rows, x, bias);
  }
}

TEST_CASE("a quantised product of inputs that are no numbers is not a number, in their row alone", "[quantised]") {
  auto device = make_backend_under_test();
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(52);
  const Blocks w = random_blocks(random, BlockType::q5_k, 17, 512);
  const auto matrix = load(*backend, w);
  Values x = random.values(3, 512);
  const Values before = multiply(*backend, x, *matrix, {});
  x.at(1, 300) = INFINITY;
  const Values after = multiply(*backend, x, *matrix, {});
  require_same_bits(after.row(0), before.row(0));
  require_same_bits(after.row(2), before.row(2));
  for (const float value : after.row(1)) CHECK_FALSE(std::isfinite(value));
}

TEST_CASE("a quantised product in bf16 is that in f32, rounded", "[quantised]") {
  auto device = make_unpacking("1000");
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  if (backend->gate_type(DType::bf16) == DType::f32) return;  // BATON_CUDA_GATES=f32
  Random random(54);
  const Blocks w = random_blocks(random, BlockType::q4_k, 200, 512);
  const auto matrix = load(*backend, w);
  for (const std::int64_t rows : {3, 140}) {
    const Values x = random.values(rows, w.cols), wide = multiply(*backend, x, *matrix, {});
    std::vector<std::uint16_t> narrow(wide.data.size()), expected;
    backend->matmul({reinterpret_cast<std::byte*>(narrow.data()), DType::bf16, rows, w.rows, w.rows}, x.view(), *matrix,
                    {});
    for (const float value : wide.data) expected.push_back(f32_to_bf16(value));
    CHECK(narrow == expected);
  }
}

TEST_CASE("embeddings of quantised weights on a device have the values of their blocks", "[quantised]") {
  auto device = make_backend_under_test();
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(53);
  for (const BlockType type : kQuantized) {
    const std::int64_t cols = columns_of(type, 3, 1);
    const Blocks parts[] = {random_blocks(random, type, 21, cols), random_blocks(random, BlockType::q8_0, 18, cols)};
    const BlockView views[] = {parts[0].view(), parts[1].view()};
    const auto table = backend->load_quantized_matrix(views, Activations::int8);
    std::vector<std::int32_t> ids;
    for (std::int32_t id = 0; id < 39; ++id) ids.push_back(id * 7 % 39);
    const Values values[] = {parts[0].values(), parts[1].values()};
    Values rows(39, cols);
    backend->embed(rows.view(), *table, ids);
    INFO(name_of(type));
    for (std::int64_t i = 0; i < 39; ++i) {
      const std::int32_t id = ids[i];
      require_same_bits(rows.row(i), id < 21 ? values[0].row(id) : values[1].row(id - 21));
    }
  }
}

}  // namespace
}  // namespace baton::test::quantized_test
