// SPDX-License-Identifier: Apache-2.0
// One result on every processor: whichever instructions multiply bytes, and on x86 as on Arm. The hashes below are of
// no other implementation; they say that all instruction sets with fused multiply-add give the same bits.
#include <bit>
#include <map>

#include "engine/base/hash.h"
#include "engine/base/random.h"
#include "engine/cpu/quantized/quantized.h"
#include "targets.h"
#include "tests/engine/ops/quantized_cases.h"

namespace baton::test::same_bits_test {
namespace {

/// All choices among the dot product instructions that this processor has, none of them among those.
std::vector<cpu::DotInstructions> usable_instructions() {
  const cpu::DotInstructions has = cpu::dot_instructions();
  std::vector<cpu::DotInstructions> all;
  for (int choice = 0; choice < 16; ++choice) {
    const cpu::DotInstructions some{.avx512_vnni = (choice & 1) != 0,
                                    .avx_vnni = (choice & 2) != 0,
                                    .neon_sdot = (choice & 4) != 0,
                                    .amx_int8 = (choice & 8) != 0};
    if ((some.avx512_vnni && !has.avx512_vnni) || (some.avx_vnni && !has.avx_vnni)) continue;
    if ((some.neon_sdot && !has.neon_sdot) || (some.amx_int8 && !has.amx_int8)) continue;
    all.push_back(some);
  }
  return all;
}

TEST_CASE("quantised matmul has the bits of the reference with and without dot product instructions") {
  Random random(30);
  const auto reference = make_reference_backend();
  const auto backend = make_cpu_backend(1);
  cpu::ThreadPool pool(2);
  cpu::Scratch scratch(*backend, 2);
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 70, columns_of(type, 11, 2));
    const auto matrix = load(*backend, w);
    for (const std::int64_t rows : {1, 4, 5, 14, 16, 21, 22, 31, 33, 48, 150}) {
      const Values x = random_activations(random, rows, w.cols);
      const Values expected = multiply(*reference, x, *load(*reference, w), {});
      for (const cpu::DotInstructions& has : usable_instructions()) {
        for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
          if (!is_fused(target)) continue;
          const OnlyTarget only(target);
          INFO(hwy::TargetName(target) << " " << name_of(type) << " T " << rows << " AVX-512 VNNI " << has.avx512_vnni
                                       << " AVX-VNNI " << has.avx_vnni << " SDOT " << has.neon_sdot << " AMX "
                                       << has.amx_int8);
          Values actual(rows, w.rows, std::nanf(""));
          cpu::matmul_quantized(pool, scratch, has, actual.view(), x.view(),
                                dynamic_cast<const cpu::QuantizedMatrix&>(*matrix), {});
          require_same_bits(actual.data, expected.data);
        }
      }
    }
  }
}

/// Numbers of [-2, 2), the same with every standard library.
Values uniform(std::uint64_t seed, std::int64_t rows, std::int64_t cols) {
  Values out(rows, cols);
  for (float& value : out.data) value = static_cast<float>(next_uniform(seed) * 4 - 2);
  return out;
}

using Hashes = std::map<std::string, std::uint64_t>;

void add_hash(Hashes& hashes, const std::string& name, const Values& values) {
  std::uint64_t hash = kFnvStart;
  for (const float value : values.data) hash = fnv1a(hash, std::bit_cast<std::uint32_t>(value));
  hashes[name] = hash;
}

Hashes hashes_of(Backend& backend) {
  Hashes hashes;
  Random random(31);
  const Values x = uniform(1, 19, 768);
  const std::vector<float> bias = uniform(2, 1, 70).data;
  for (const DType dtype : kStored) {
    add_hash(hashes, dtype == DType::bf16 ? "matmul bf16" : "matmul f32",
             multiply(backend, x, *load(backend, uniform(3, 70, 768), dtype), bias));
  }
  add_hash(hashes, "matmul bf16 bf16",
           multiply(backend, x, *load(backend, uniform(3, 70, 768), DType::bf16, Activations::bf16), bias));
  for (const BlockType type : kQuantized) {
    const Blocks w = random_blocks(random, type, 70, 768);
    for (const Activations activations : {Activations::int8, Activations::f32}) {
      const auto matrix = load(backend, w, activations);
      const std::string name = name_of(type) + (activations == Activations::int8 ? " int8" : " f32");
      add_hash(hashes, name, multiply(backend, x, *matrix, bias));
      const std::string few = name + ", few rows";
      add_hash(hashes, few, multiply(backend, uniform(4, 3, 768), *matrix, bias));
    }
  }
  const std::vector<float> weight = uniform(5, 1, 768).data;
  Values normed(19, 768);
  backend.rms_norm(normed.view(), x.view(), weight, 1e-6f);
  add_hash(hashes, "rms_norm", normed);
  Values rotated = x;
  const Values cos = uniform(6, 19, 32), sin = uniform(7, 19, 32);
  backend.rope(rotated.view(), 64, {cos.view(), sin.view()});
  add_hash(hashes, "rope", rotated);
  return hashes;
}

TEST_CASE("operations have the bits that they have on every processor") {
  const Hashes expected = {
      {"IQ4_NL f32", 0x9a76edd9c3717288},
      {"IQ4_NL f32, few rows", 0xce20af26ef6119d9},
      {"IQ4_NL int8", 0x85baf072eb0bef8d},
      {"IQ4_NL int8, few rows", 0x6d1d0c0ece28a0fb},
      {"IQ4_XS f32", 0x74d52c5b00930398},
      {"IQ4_XS f32, few rows", 0x7f3e6e05c1519fd9},
      {"IQ4_XS int8", 0xbd2a9f502626c651},
      {"IQ4_XS int8, few rows", 0x13da9d736659b388},
      {"MXFP4 f32", 0xd476fc194340d83c},
      {"MXFP4 f32, few rows", 0xc2c84357fb957957},
      {"MXFP4 int8", 0x4d8c670d22650de9},
      {"MXFP4 int8, few rows", 0xe892fd7e5772e22a},
      {"Q2_K f32", 0xa0e00cdcc2483d42},
      {"Q2_K f32, few rows", 0x36aa9d6ebc789252},
      {"Q2_K int8", 0x54e83481c9e58afa},
      {"Q2_K int8, few rows", 0x24479ff005e27436},
      {"Q3_K f32", 0xe42d7deb9214c36b},
      {"Q3_K f32, few rows", 0xdc48dbda84512388},
      {"Q3_K int8", 0xd0ea551023ea7e2},
      {"Q3_K int8, few rows", 0xa7383c9ef0a04e41},
      {"Q4_0 f32", 0x252f69e9611d018a},
      {"Q4_0 f32, few rows", 0x505e7fa3ed684d86},
      {"Q4_0 int8", 0xb6992151aae65725},
      {"Q4_0 int8, few rows", 0x446fca7d1dc08ffd},
      {"Q4_1 f32", 0x3e983ab61323c6d0},
      {"Q4_1 f32, few rows", 0x8827f5f52780aee8},
      {"Q4_1 int8", 0x6b25f6a86bc9afe2},
      {"Q4_1 int8, few rows", 0x94ce634a7313eef9},
      {"Q4_K f32", 0x8e8ac4533293ba8a},
      {"Q4_K f32, few rows", 0x6aa69331c1d99304},
      {"Q4_K int8", 0x6872bfc0f035f44},
      {"Q4_K int8, few rows", 0x8d834362351c8fb1},
      {"Q5_0 f32", 0xaf8362829a546b1e},
      {"Q5_0 f32, few rows", 0xfb140e43eed79aa2},
      {"Q5_0 int8", 0xa0990b67bb480d6a},
      {"Q5_0 int8, few rows", 0x3622309cf3354a1},
      {"Q5_1 f32", 0xb8adf0e59dc357ac},
      {"Q5_1 f32, few rows", 0x8f8069c9c020b766},
      {"Q5_1 int8", 0xf5ff26924e2bce40},
      {"Q5_1 int8, few rows", 0xa81607c375508ecc},
      {"Q5_K f32", 0xc5468b5eaf6e3967},
      {"Q5_K f32, few rows", 0x75d1a8585e0b646c},
      {"Q5_K int8", 0x4cb67168cb66d7e8},
      {"Q5_K int8, few rows", 0x782d9bbd9964981d},
      {"Q6_K f32", 0x3faa009f44f74bce},
      {"Q6_K f32, few rows", 0xdb2f7251c7688826},
      {"Q6_K int8", 0x18d720580b092932},
      {"Q6_K int8, few rows", 0x49dbdd1a4b22486e},
      {"Q8_0 f32", 0x9ad23cd3effc5f17},
      {"Q8_0 f32, few rows", 0x3a3c5df80008d38c},
      {"Q8_0 int8", 0xc0a05f1a27020028},
      {"Q8_0 int8, few rows", 0x3cfefc82fd5d4b5d},
      {"matmul bf16", 0xdcf471d8ea9e0cb5},
      {"matmul f32", 0x53e17b666983288f},
      {"matmul bf16 bf16", 0xdf746677c58320fb},
      {"rms_norm", 0x6441d7aef1121e13},
      {"rope", 0xa80b19f7f2aae5a4},
  };
  const auto backend = make_cpu_backend(2);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (!is_fused(target)) continue;
    const OnlyTarget only(target);
    INFO(hwy::TargetName(target));
    const Hashes actual = hashes_of(*backend);
    REQUIRE(!actual.empty());
    for (const auto& [name, hash] : actual) {
      INFO("{\"" << name << "\", 0x" << std::hex << hash << "},");
      const auto found = expected.find(name);
      CHECK((found != expected.end() && found->second == hash));
    }
  }
}

}  // namespace
}  // namespace baton::test::same_bits_test
