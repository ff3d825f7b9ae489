// What the device can do at best: cuBLAS's product of two large bf16 matrices, and a copy within its memory.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/cuda/cuda.h"

namespace baton {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw BackendError(std::string("limits: ") + what + ": " + cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw BackendError(std::string("limits: ") + what + ": " + cublasLtGetStatusString(status));
}

/// Device memory, freed at the end.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { check(cudaMalloc(&data_, bytes), "device memory"); }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Seconds of one run, the median of `kRuns` between events, behind two that are not counted.
template <class Run>
double median_seconds(Run run) {
  constexpr int kRuns = 15;
  cudaEvent_t begin{}, end{};
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = -2; i < kRuns; ++i) {
    check(cudaEventRecord(begin), "event");
    run();
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "run");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 0) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2] / 1000.0;
}

double copy_gbs() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const Memory from(kBytes), to(kBytes);
  check(cudaMemset(from.get(), 1, kBytes), "fill");
  const double seconds =
      median_seconds([&] { check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice), "copy"); });
  return 2.0 * kBytes / seconds / 1e9;
}

/// bf16 numbers in (-2, 2): zeros would draw less power, and run faster than real weights.
__global__ void fill(unsigned short* out, unsigned count, unsigned seed) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    unsigned z = (i ^ seed) * 0x9e3779b9u;
    z = (z ^ (z >> 16)) * 0x85ebca6bu;
    z ^= z >> 13;
    out[i] = static_cast<unsigned short>((z & 0x80ffu) | 0x3f00u);
  }
}

double gemm_gflops() {
  constexpr int kSide = 8192;
  constexpr unsigned kCount = kSide * kSide;
  constexpr std::size_t kWorkspace = std::size_t{64} << 20;
  const Memory a(kCount * 2), b(kCount * 2), out(kCount * 2), workspace(kWorkspace);
  fill<<<1024, 256>>>(static_cast<unsigned short*>(a.get()), kCount, 1u);
  fill<<<1024, 256>>>(static_cast<unsigned short*>(b.get()), kCount, 2u);
  check(cudaGetLastError(), "fill");

  cublasLtHandle_t handle{};
  check(cublasLtCreate(&handle), "cuBLAS");
  cublasLtMatmulDesc_t product{};
  check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cuBLAS");
  const cublasOperation_t transposed = CUBLAS_OP_T;  // as weights [N, C] are multiplied
  check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed), "cuBLAS");
  cublasLtMatrixLayout_t square{};
  check(cublasLtMatrixLayoutCreate(&square, CUDA_R_16BF, kSide, kSide, kSide), "cuBLAS");
  cublasLtMatmulPreference_t preference{};
  check(cublasLtMatmulPreferenceCreate(&preference), "cuBLAS");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                             sizeof kWorkspace),
        "cuBLAS");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, product, square, square, square, square, preference, 1, &found, &count),
        "cuBLAS");
  if (count == 0) throw BackendError("limits: cuBLAS knows no bf16 product for this device");
  const float one = 1.0f, zero = 0.0f;
  const double seconds = median_seconds([&] {
    check(cublasLtMatmul(handle, product, &one, a.get(), square, b.get(), square, &zero, out.get(), square, out.get(),
                         square, &found.algo, workspace.get(), kWorkspace, nullptr),
          "product");
  });
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(square);
  cublasLtMatmulDescDestroy(product);
  cublasLtDestroy(handle);
  return 2.0 * kSide * kSide * kSide / seconds / 1e9;
}

}  // namespace

MachineLimits measure_cuda_limits(int device) {
  check(cudaSetDevice(device), "device");
  return {gemm_gflops(), copy_gbs()};
}

}  // namespace baton
