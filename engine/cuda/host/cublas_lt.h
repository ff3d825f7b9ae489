// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, found at run time: the few functions that we call, in one table. A machine without the library starts the
// program all the same, and hears by name what is missing when it asks for the device.
#pragma once

#include <cublasLt.h>

#include <string>

#include "engine/backend/device.h"

namespace baton::cuda {

class CublasLt {
 public:
  /// Opens the library; throws BackendError with what was looked for and why it was not had.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

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

  /// As check() of the runtime's calls, with the library's codes.
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
