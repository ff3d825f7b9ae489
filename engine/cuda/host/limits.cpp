// SPDX-License-Identifier: Apache-2.0
// The measured peak rates of a device: cuBLASLt's product of two large bf16 matrices, and a copy within its memory.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "engine/cuda/host/check.h"
#include "engine/cuda/host/cublas_lt.h"
#include "engine/cuda/host/cuda.h"

namespace baton {
namespace {

constexpr int kSide = 8192;  // rows and columns of the matrices

/// Owns device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { BATON_CUDA_CHECK(cudaMalloc(&data_, bytes)); }
  ~Memory() { cuda::ignore(cudaFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { BATON_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cuda::ignore(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { BATON_CUDA_CHECK(cudaEventRecord(event_, nullptr)); }
  double seconds_since(const Event& before) const {
    BATON_CUDA_CHECK(cudaEventSynchronize(event_));
    float ms = 0;
    BATON_CUDA_CHECK(cudaEventElapsedTime(&ms, before.event_, event_));
    return ms / 1000.0;
  }

 private:
  cudaEvent_t event_{};
};

/// Returns the median of 15 runs, after two warm-up runs.
template <class Run>
double median_seconds(const Run& run) {
  constexpr int kRuns = 15;
  Event begin, end;
  std::vector<double> times;
  for (int i = -2; i < kRuns; ++i) {
    begin.record();
    run();
    end.record();
    const double seconds = end.seconds_since(begin);
    if (i >= 0) times.push_back(seconds);
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

double copy_gbs() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const Memory from(kBytes), to(kBytes);
  BATON_CUDA_CHECK(cudaMemset(from.get(), 1, kBytes));
  const double seconds = median_seconds(
      [&] { BATON_CUDA_CHECK(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, nullptr)); });
  return 2.0 * static_cast<double>(kBytes) / seconds / 1e9;
}

/// Returns bf16 numbers of either sign, 0.5 to 2 in magnitude. With zeros the device draws less power, and is faster
/// than with real weights.
std::vector<std::uint16_t> random_numbers() {
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(kSide) * kSide);
  std::uint64_t state = 1;
  for (std::uint16_t& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<std::uint16_t>(((state >> 40) & 0x80ffu) | 0x3f00u);
  }
  return numbers;
}

/// Owns the descriptors of a product.
struct MemoryPlan {
  explicit MemoryPlan(const cuda::CublasLt& library) : lt(library) {
    BATON_CUBLAS_CHECK(lt, create(&handle));
    BATON_CUBLAS_CHECK(lt, desc_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BATON_CUBLAS_CHECK(lt, layout_create(&square, CUDA_R_16BF, kSide, kSide, kSide));
    BATON_CUBLAS_CHECK(lt, preference_create(&preference));
  }
  ~MemoryPlan() {
    if (preference != nullptr) lt.preference_destroy(preference);
    if (square != nullptr) lt.layout_destroy(square);
    if (product != nullptr) lt.desc_destroy(product);
    if (handle != nullptr) lt.destroy(handle);
  }
  MemoryPlan(const MemoryPlan&) = delete;
  MemoryPlan& operator=(const MemoryPlan&) = delete;

  const cuda::CublasLt& lt;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t square = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

double gemm_gflops() {
  constexpr std::size_t kWorkspace = std::size_t{64} << 20;
  const auto numbers = random_numbers();
  const std::size_t bytes = numbers.size() * sizeof(std::uint16_t);
  const Memory a(bytes), b(bytes), out(bytes), workspace(kWorkspace);
  BATON_CUDA_CHECK(cudaMemcpy(a.get(), numbers.data(), bytes, cudaMemcpyHostToDevice));
  BATON_CUDA_CHECK(cudaMemcpy(b.get(), numbers.data(), bytes, cudaMemcpyHostToDevice));

  const cuda::CublasLt lt;
  const MemoryPlan plan(lt);
  const cublasOperation_t transposed = CUBLAS_OP_T;  // like weights [N, C] in the model
  BATON_CUBLAS_CHECK(lt, desc_set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  BATON_CUBLAS_CHECK(
      lt, preference_set(plan.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  BATON_CUBLAS_CHECK(lt, heuristic(plan.handle, plan.product, plan.square, plan.square, plan.square, plan.square,
                                   plan.preference, 1, &found, &count));
  if (count == 0) throw BackendError("limits: cuBLASLt has no bf16 algorithm for this device");
  const float one = 1.0f, zero = 0.0f;
  const double seconds = median_seconds([&] {
    BATON_CUBLAS_CHECK(
        lt, matmul(plan.handle, plan.product, &one, a.get(), plan.square, b.get(), plan.square, &zero, out.get(),
                   plan.square, out.get(), plan.square, &found.algo, workspace.get(), kWorkspace, nullptr));
  });
  return 2.0 * kSide * kSide * kSide / seconds / 1e9;
}

}  // namespace

MachineLimits measure_cuda_limits(int device) {
  BATON_CUDA_CHECK(cudaSetDevice(device));
  return {gemm_gflops(), copy_gbs()};
}

}  // namespace baton
