// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace baton::cuda {
namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";

template <class Function>
void find(void* library, Function& out, const char* name) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  if (out == nullptr) throw BackendError(fmt::format("device 'cuda': {} does not have function {}", kLibrary, name));
}

}  // namespace

CublasLt::CublasLt() {
  // It stays in memory: work of the library may run on after its last user here is gone.
  library_ = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library_ == nullptr) {
    const char* reason = dlerror();
    throw BackendError(fmt::format("device 'cuda': cannot open {} of the CUDA 13 libraries: {}", kLibrary,
                                   reason == nullptr ? "no reason given" : reason));
  }
  try {
    find(library_, create, "cublasLtCreate");
    find(library_, destroy, "cublasLtDestroy");
    find(library_, status_string, "cublasLtGetStatusString");
    find(library_, matmul, "cublasLtMatmul");
    find(library_, desc_create, "cublasLtMatmulDescCreate");
    find(library_, desc_destroy, "cublasLtMatmulDescDestroy");
    find(library_, desc_set, "cublasLtMatmulDescSetAttribute");
    find(library_, layout_create, "cublasLtMatrixLayoutCreate");
    find(library_, layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(library_, preference_create, "cublasLtMatmulPreferenceCreate");
    find(library_, preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(library_, preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(library_, heuristic, "cublasLtMatmulAlgoGetHeuristic");
  } catch (...) {
    dlclose(library_);
    throw;
  }
}

CublasLt::~CublasLt() { dlclose(library_); }

}  // namespace baton::cuda
