// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt. One plan (descriptors and algorithm) is kept per shape; the owner provides one
// workspace. The algorithm is the first choice of the library's heuristics. For the few rows of decoding, which run
// thousands of times, it is the fastest of the heuristics' choices and our own kernels (few_rows.cu,
// few_rows_tensor.cu), measured at the first use, unless that is known from before (measured_products.h).
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "engine/cuda/host/cublas_lt.h"
#include "engine/cuda/host/measured_products.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Threads: one caller at a time.
class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// Takes what is known of a machine from the folder, and keeps there what is measured from now on.
  void remember(const std::filesystem::path& folder, const std::string& machine);

  /// Queues the product on the stream. `may_measure`: algorithms may be measured first, for which the host waits.
  /// Throws BackendError.
  void multiply(const Product& product, void* workspace, Stream stream, bool may_measure);

 private:
  struct Plan;
  using Key = std::array<std::int64_t, 12>;
  Plan& plan_for(const Product& product);
  /// Computes the product in one of the ways that its plan has.
  void run(const Product& product, const Plan& plan, int way, void* workspace, Stream stream);
  void run_algorithm(const Product& product, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                     Stream stream);
  void choose(const Product& product, Plan& plan, void* workspace, Stream stream, bool may_measure);
  int measure(const Product& product, const Plan& plan, void* workspace, Stream stream);

  CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  MeasuredProducts measured_;
};

}  // namespace baton::cuda
