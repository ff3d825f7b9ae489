// SPDX-License-Identifier: Apache-2.0
// Quantised weights on the CUDA backend: compiled once for the emulated kernels and once for a GPU.
#include <algorithm>
#include <cmath>

#include "engine/cpu/quantized/reference_quantized.h"
#include "tests/engine/cuda/host_memory.h"
#include "tests/engine/cuda/models.h"
#include "tests/engine/ops/quantized_cases.h"

namespace baton::test {
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

TEST_CASE("quantised products on a device are those of exact weights, with the same bits in any batch", "[quantised]") {
  auto device = make_backend_under_test();
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(51);
  // Rows beyond 32 go the way of many rows where these outputs fill the device.
  for (const auto& [outputs, batches] :
       {std::pair<std::int64_t, std::vector<std::int64_t>>{37, {8, 9, 33}}, {500, {130}}}) {
    for (const BlockType type : kQuantized) {
      const Blocks w = random_blocks(random, type, outputs, columns_of(type, type < BlockType::q2_k ? 11 : 2));
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
  auto device = make_backend_under_test();
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
    const std::int64_t cols = columns_of(type, type < BlockType::q2_k ? 3 : 1);
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
}  // namespace baton::test
