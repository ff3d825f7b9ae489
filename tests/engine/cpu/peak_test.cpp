// SPDX-License-Identifier: Apache-2.0
// The loops that products and reads are compared with do what they count.
#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/cpu/cpu.h"

namespace peak_test {

using namespace baton;

TEST_CASE("peak: the operations grow with the repetitions", "[cpu][peak]") {
  for (const Products kind : {Products::f32, Products::bf16, Products::bytes, Products::tiles}) {
    CHECK(repeat_products(kind, 30) == 3 * repeat_products(kind, 10));
    CHECK(repeat_products(kind, 0) == 0.0);
  }
  CHECK(repeat_products(Products::f32, 1) > 0.0);
}

TEST_CASE("peak: every byte is read, whatever the number of streams", "[cpu][peak]") {
  constexpr std::size_t kBytes = 8 * 4096;
  std::vector<std::byte> bytes(kBytes + 8192);  // what is prefetched may lie behind
  const std::span<const std::byte> all(bytes.data(), kBytes);
  for (const std::size_t streams : {1, 2, 4, 8}) {
    CAPTURE(streams);
    REQUIRE(read_streams(all, streams) == 0);
    std::size_t seen = 0;
    for (std::size_t at = 0; at < kBytes; at += 64) {  // lane 0 of the result holds a quarter or less of the bytes
      for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = std::byte{1};
      seen += read_streams(all, streams) != 0 ? 1 : 0;
      for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = std::byte{0};
    }
    CHECK(seen == kBytes / 64);
  }
}

TEST_CASE("limits: they are measured for the kinds of products that are asked for", "[cpu][peak][limits]") {
  const auto backend = make_cpu_backend(1);
  const MachineLimits plain = measure_host_limits(*backend, {.bytes = 1 << 20});
  const MachineLimits bytes = measure_host_limits(*backend, {.bytes = 1 << 20, .quantized = true});
  CHECK(plain.products == "f32");
  CHECK(plain.gemm_gflops > 0.1);
  CHECK(plain.bandwidth_gbs > 0.01);
  CHECK(bytes.gemm_gflops > 0.0);
}

}  // namespace peak_test
