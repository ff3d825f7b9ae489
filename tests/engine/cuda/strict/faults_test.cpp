// SPDX-License-Identifier: Apache-2.0
// Every call of the CUDA runtime and of cuBLASLt fails once, with each error that its documentation lists: what follows
// is a BackendError that names the call, or the same results; nothing is left, and no rule is broken on the way out.
#include <catch2/catch.hpp>
#include <cstdio>
#include <set>

#include "engine/cuda/host/cuda.h"
#include "engine/kv/segment.h"
#include "tests/engine/cuda/steps.h"
#include "tests/support/strict/strict.h"
#include "tests/support/thread_time.h"

namespace baton::test::faults_test {
namespace {

/// What an engine does with a device: loads a model, prefills, decodes until steps are replayed, chooses tokens, moves
/// KV to host memory and back, aligns texts.
std::vector<float> everything() {
  std::vector<float> results;
  auto owned = make_cuda_backend(0);
  Backend& backend = *owned;
  results.push_back(static_cast<float>(backend.info().threads));
  {
    constexpr std::int32_t kTokens = 12;
    const KvLayout layout{.shapes = std::vector<KvShape>(2, {1, 16, DType::bf16}), .raw_keys = true};
    KvCache cache(backend, layout, kTokens);
    std::vector<std::byte> bits(cache.bytes(), std::byte{3});
    backend.copy_to_device(cache.slab(0).keys, bits);
    cache.commit(kTokens);
    const auto segment = std::make_shared<Segment>(backend, cache, 0, kTokens, random_tokens(kTokens, 4));
    const auto on_host = segment->copy_to_host();
    backend.wait();
    const auto back = on_host->copy_to_device();
    back->upload(1);
    const ConstTensorView values = back->values(1);
    std::vector<std::byte> bytes(static_cast<std::size_t>(values.rows * values.cols) * size_of(values.dtype));
    backend.copy_to_host(bytes, values.data);
    for (const std::byte byte : bytes) results.push_back(static_cast<float>(byte));
  }
  Steps steps(std::move(owned), {.layers = 1, .width = 32, .heads = 2, .kv_heads = 1, .ffn_width = 32, .bias = true}, 1,
              false);
  const std::vector<TokenChoice> how = {{.entropy = 1}};
  for (const int rows : {10, 1, 1, 1}) {
    const auto chosen = steps.run({rows}, how, rows);
    results.insert(results.end(), chosen.begin(), chosen.end());
  }
  return results;
}

/// Up to the rounding of another algorithm for a product.
bool are_same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return std::abs(x - y) < 0.02f; });
}

/// Whether an error says which call failed.
bool names(const std::string& error, const std::string& call) {
  const auto has = [&](const std::string& text) { return error.find(text) != std::string::npos; };
  if (call == "cudaLaunchKernel") return has("the launch of ");
  if (call == "cudaGetDeviceCount") return has("no NVIDIA driver or no GPU");
  if (call == "cudaFuncGetAttributes") return has("kernels cannot run on compute capability");
  if (call == "cudaMallocAsync" && has("cannot allocate")) return true;
  if (call == "cudaMallocHost" && has("cannot pin")) return true;
  // cuBLASLt's functions are called through a table: cublasLtMatmul is matmul.
  if (call.starts_with("cublasLt")) return has("cuBLASLt");
  return has(call);
}

/// Lets one call fail and checks what follows. Returns whether it was refused.
bool check_failure(std::uint64_t number, int error, bool sticky, const std::vector<float>& expected) {
  strict::restart();
  strict::fail_call(number, error, sticky);
  bool refused = false;
  INFO("call " << number << ", error " << error << (sticky ? ", which stays" : ""));
  try {
    const std::vector<float> results = everything();
    INFO("in " << strict::failed_call());
    if (!sticky) REQUIRE(are_same(results, expected));
  } catch (const BackendError& failure) {
    refused = true;
    INFO(strict::failed_call() << ": " << failure.what());
    if (!sticky) REQUIRE(names(failure.what(), strict::failed_call()));
  }
  INFO("in " << strict::failed_call());
  const auto broken = strict::take_reports_and_leaks();
  for (const std::string& what : broken) UNSCOPED_INFO(what);
  REQUIRE(broken.empty());
  return refused;
}

TEST_CASE("every call that fails is an error that names it, or does no harm") {
  strict::record_sites(true);
  const std::vector<float> expected = everything();
  strict::record_sites(false);
  REQUIRE(strict::take_reports_and_leaks().empty());
  const std::vector<strict::Site> sites = strict::sites();
  REQUIRE(sites.size() > 300);
  REQUIRE(everything() == expected);
  strict::take_reports_and_leaks();
  int injected = 0, refused = 0;
  std::set<std::string> kinds;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].errors.empty()) continue;
    const bool is_new = kinds.insert(sites[i].call).second;
    if (!is_new && !nightly() && i % 2 == 1) continue;
    // Calls of one kind repeat many times: each call has one of the errors in turn.
    refused += check_failure(i + 1, sites[i].errors[i % sites[i].errors.size()], false, expected) ? 1 : 0;
    ++injected;
    if (i % 5 != 0) continue;
    refused +=
        check_failure(i + 1, i % 2 == 0 ? cudaErrorIllegalAddress : cudaErrorLaunchFailure, true, expected) ? 1 : 0;
    ++injected;
  }
  std::printf("%d failures injected into %zu calls of %zu entry points: %d refused with an error, %d without effect\n",
              injected, sites.size(), kinds.size(), refused, injected - refused);
  CHECK(refused > injected / 2);
}

}  // namespace
}  // namespace baton::test::faults_test
