// SPDX-License-Identifier: Apache-2.0
// MeasuredProducts: what was the fastest way to compute products of few rows when it was measured on this machine,
// maybe by another process. It is kept in a file for each kind of device, driver and library.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/cuda/host/cublas_lt.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Threads: one caller at a time.
class MeasuredProducts {
 public:
  /// Remembers within the process alone.
  MeasuredProducts() = default;
  /// Reads what is known of the machine. A file that cannot be read, belongs to another machine or holds anything but
  /// ways in [0, max_ways) is ignored; the next add() replaces it.
  MeasuredProducts(const std::filesystem::path& folder, std::string machine, int max_ways);

  /// The number of the fastest way to compute a product, of those that the caller numbers.
  std::optional<int> find(const std::string& product) const;
  /// Failures to write the file are ignored: the product is measured again.
  void add(const std::string& product, int way);

 private:
  void read(int max_ways);

  std::filesystem::path file_;
  std::string machine_;
  std::map<std::string, int> fastest_;
};

// Matrix products by cuBLASLt. One plan (descriptors and algorithm) is kept per shape; the owner provides one
// workspace. The algorithm is the first choice of the library's heuristics. For the few rows of decoding, which run
// thousands of times, it is the fastest of the heuristics' choices and our own kernels (few_rows.cu,
// few_rows_tensor.cu), measured at the first use, unless that is known from before (measured_products.h).

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
