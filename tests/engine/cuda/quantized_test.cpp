// SPDX-License-Identifier: Apache-2.0
// Quantised weights on the CUDA backend: compiled once for the emulated kernels and once for a GPU.
#include <cmath>

#include "engine/cpu/quantized/reference_quantized.h"
#include "engine/cuda/quantized/quantized_layout.h"
#include "tests/engine/cuda/host_memory.h"
#include "tests/engine/cuda/models.h"
#include "tests/engine/ops/quantized_cases.h"

namespace baton::test {
namespace {

/// The sum that quantized_kernels.h promises for output n of a row: each eighth of the units is a chain of its own.
float chained(std::span<const float> x, const Blocks& w, std::int64_t n, float bias) {
  const std::byte* row = w.view().row(n);
  const std::int64_t units = cuda::blocks_of(w.cols, cuda::kUnitInputs), each = cuda::blocks_of(units, cuda::kSplits);
  float total = 0;
  for (std::int64_t begin = 0; begin < w.cols; begin += each * cuda::kUnitInputs) {
    float acc = 0;
    for (std::int64_t c = begin; c < std::min(begin + each * cuda::kUnitInputs, w.cols); c += 32) {
      const float largest_input = largest(x.subspan(c, 32));
      const bool zeros = largest_input < 0x1p-100f;
      const float scale = zeros ? 0.0f : largest_input / 127.0f, inverse = zeros ? 0.0f : 127.0f / largest_input;
      int x_sum = 0;
      const cpu::Quant first = cpu::quant_of(w.type, row, c);
      for (std::int64_t g = c; g < c + 32; g += first.group) {
        int sum = 0;
        for (std::int64_t i = g; i < g + first.group; ++i) {
          const int quant = static_cast<int>(std::nearbyint(x[i] * inverse));
          sum += cpu::quant_of(w.type, row, i).quant * quant;
          x_sum += quant;
        }
        acc = std::fma(static_cast<float>(sum) * scale, cpu::quant_of(w.type, row, g).scale, acc);
      }
      if (first.has_minimum) acc = std::fma(first.minimum, scale * static_cast<float>(x_sum), acc);
    }
    total += acc;
  }
  return total + bias;
}

TEST_CASE("quantised products on a device have the bits of their chains in any batch", "[quantised]") {
  auto device = make_backend_under_test();
  if (device == nullptr) return;
  const auto backend = with_host_memory(std::move(device));
  Random random(51);
  // Rows beyond 32 go the way of many rows where these outputs fill the device.
  for (const auto& [outputs, batches] :
       {std::pair<std::int64_t, std::vector<std::int64_t>>{37, {1, 8, 9, 33}}, {500, {130}}}) {
    for (const BlockType type : kQuantized) {
      const Blocks w = random_blocks(random, type, outputs, columns_of(type, type < BlockType::q2_k ? 11 : 2));
      const auto matrix = load(*backend, w);
      const std::vector<float> bias = random.vector(outputs);
      CHECK(matrix->bytes < static_cast<std::size_t>((outputs + 16) * (w.cols + 64) * 5 / 4));
      for (const std::int64_t rows : batches) {
        const Values x = random_activations(random, rows, w.cols);
        Values expected(rows, outputs);
        const std::int64_t step = rows > 64 ? 9 : 1;  // rows that are compared
        for (std::int64_t t = 0; t < rows; t += step) {
          for (std::int64_t n = 0; n < outputs; ++n) expected.at(t, n) = chained(x.row(t), w, n, bias[n]);
        }
        Values actual = multiply(*backend, x, *matrix, bias);
        INFO(name_of(type) << ", " << rows << " rows");
        for (std::int64_t t = 0; t < rows; t += step) require_same_bits(actual.row(t), expected.row(t));
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
  for (const float value : after.row(1)) CHECK(std::isnan(value));
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
