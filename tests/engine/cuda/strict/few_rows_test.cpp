// SPDX-License-Identifier: Apache-2.0
// The kernels for products of few rows, each by itself: which of them a product takes is measured (products_test.cpp).
#include <catch2/catch.hpp>
#include <random>

#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/tensor/tensor.h"
#include "tests/support/strict/strict.h"

namespace baton::test::few_rows_test {
namespace {

/// A product of numbers that bf16 holds, so that sums in any order are exact.
struct Operands {
  Operands(cuda::Runtime& runtime, cuda::Staging& staging, std::int64_t t, std::int64_t n, std::int64_t c)
      : runtime_(runtime), t_(t), n_(n), c_(c) {
    std::mt19937 random(static_cast<std::uint32_t>(t * 10000 + n * 100 + c));
    const auto numbers = [&](std::int64_t count) {
      std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
      for (std::uint16_t& one : bits) one = f32_to_bf16(static_cast<float>(static_cast<int>(random() % 9) - 4) / 4);
      return bits;
    };
    x = numbers(t * (c + kPadding));
    w = numbers(n * c);
    bias.resize(static_cast<std::size_t>(n));
    for (float& one : bias) one = static_cast<float>(random() % 100);
    const auto put = [&](const auto& values) {
      void* memory = memory_.emplace_back(runtime.allocate(std::as_bytes(std::span(values)).size()));
      staging.to_device(memory, std::as_bytes(std::span(values)));
      return memory;
    };
    product = {.x = static_cast<const std::byte*>(put(x)),
               .x_stride = c + kPadding,
               .w = static_cast<const std::byte*>(put(w)),
               .w_stride = c,
               .t = t,
               .n = n,
               .c = c};
    bias_device = static_cast<const float*>(put(bias));
  }
  ~Operands() {
    for (void* memory : memory_) runtime_.release(memory);
  }
  double exact(std::int64_t row, std::int64_t output) const {
    double sum = product.bias == nullptr ? 0.0 : bias[static_cast<std::size_t>(output)];
    for (std::int64_t i = 0; i < c_; ++i)
      sum += static_cast<double>(bf16_to_f32(x[static_cast<std::size_t>(row * (c_ + kPadding) + i)])) *
             static_cast<double>(bf16_to_f32(w[static_cast<std::size_t>(output * c_ + i)]));
    return sum;
  }

  static constexpr std::int64_t kPadding = 8;
  std::vector<std::uint16_t> x, w;
  std::vector<float> bias;
  const float* bias_device = nullptr;
  cuda::Product product;

 private:
  cuda::Runtime& runtime_;
  std::int64_t t_, n_, c_;
  std::vector<void*> memory_;
};

/// Runs the kernel and compares all that it wrote, and what it must not write.
template <class Out>
void check(cuda::Runtime& runtime, cuda::Staging& staging, void (*launch)(cuda::Stream, const cuda::Product&),
           Operands& operands) {
  cuda::Product product = operands.product;
  product.out_stride = product.n + 3;
  product.out_dtype = sizeof(Out) == 2 ? DType::bf16 : DType::f32;
  std::vector<Out> out(static_cast<std::size_t>(product.t * product.out_stride), Out{7});
  product.out = runtime.allocate(out.size() * sizeof(Out));
  staging.to_device(product.out, std::as_bytes(std::span(out)));
  REQUIRE(takes_few_rows(product));
  launch(runtime.stream(), product);
  staging.to_host(std::as_writable_bytes(std::span(out)), product.out);
  runtime.release(product.out);
  for (std::int64_t row = 0; row < product.t; ++row) {
    for (std::int64_t output = 0; output < product.out_stride; ++output) {
      const auto exact = static_cast<float>(output < product.n ? operands.exact(row, output) : 0.0);
      const Out expected = output >= product.n ? Out{7} : sizeof(Out) == 2 ? Out(f32_to_bf16(exact)) : Out(exact);
      if (const Out found = out[static_cast<std::size_t>(row * product.out_stride + output)]; found != expected)
        FAIL("row " << row << ", output " << output << ": " << found << ", expected " << expected);
    }
  }
}

TEST_CASE("kernels for products of few rows compute every output of any size", "[few_rows]") {
  const auto runtime = cuda::make_device_runtime(0);
  cuda::Staging staging(*runtime, 1 << 16);
  for (const std::int64_t t : {1, 2, 3, 5, 8}) {
    for (const auto& [n, c] : {std::pair(1L, 8L), {16L, 32L}, {17L, 128L}, {40L, 136L}, {7L, 1000L}, {15L, 2344L}}) {
      Operands operands(*runtime, staging, t, n, c);
      for (const bool biased : {false, true}) {
        INFO(t << " rows, " << n << " outputs of " << c << " inputs" << (biased ? ", with a bias" : ""));
        operands.product.bias = biased ? operands.bias_device : nullptr;
        for (const auto launch : {&cuda::launch_few_rows, &cuda::launch_few_rows_tensor}) {
          check<float>(*runtime, staging, launch, operands);
          check<std::uint16_t>(*runtime, staging, launch, operands);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::test::few_rows_test
