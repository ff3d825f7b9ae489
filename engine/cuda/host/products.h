// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, loaded at run time: a table of the few functions that we call. The program also starts on a machine without
// the library; opening the device there throws an error that names what is missing.
#pragma once

#include <cublasLt.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

/// Returns where the library may be, in the order of trying: where the loader looks, next to the program and in the
/// `lib` next to its folder, in the packages of a Python environment (`environment` is its folder, or null), in the
/// toolkit.
std::vector<std::string> cublas_lt_files(const std::string& program, const char* environment);

class CublasLt {
 public:
  /// Opens the library. Throws BackendError with the name of what is missing and the loader's reason.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

  /// Throws BackendError, with the call and the library's code and text, unless `code` is success.
  void check(cublasStatus_t code, const char* call, const char* file, int line) const {
    if (code == CUBLAS_STATUS_SUCCESS) return;
    throw BackendError(std::string("cuBLASLt: ") + call + " failed with " + status_string(code) + " (" +
                       std::to_string(static_cast<int>(code)) + "), at " + file + ":" + std::to_string(line));
  }

 private:
  void* library_ = nullptr;
};

}  // namespace baton::cuda

#define BATON_CUBLAS_CHECK(lt, call) (lt).check((lt).call, #call, __FILE__, __LINE__)

namespace baton::cuda {

// MeasuredProducts: what was the fastest way to compute products of few rows when it was measured on this machine,
// maybe by another process. It is kept in a file for each kind of device, driver and library.

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
