// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, loaded at run time: a table of the few functions that we call. The program also starts on a machine without
// the library; opening the device there throws an error that names what is missing.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "engine/backend/backend.h"

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
