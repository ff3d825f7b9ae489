// SPDX-License-Identifier: Apache-2.0
// The strict cuBLASLt: a library of its own, which the backend opens as it opens the real one. It refuses what the
// documentation of cublasLtMatmul does not allow, and reports where the real one would compute something else.
#include <cublasLt.h>
#include <fmt/format.h>

#include <cstring>

#include "engine/tensor/tensor.h"
#include "tests/support/simt/shadow.h"
#include "tests/support/strict/core.h"

using namespace baton::test::strict;  // NOLINT: entry points have no namespace

struct cublasLtContext {
  int device = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t transa = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int bias_type = -1;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D: what the library assumes unless it is told
};

namespace {

constexpr int kAlgorithms = 3;

/// What an algorithm was chosen for.
struct Algorithm {
  std::uint64_t magic;
  std::uint64_t m, n, k;
  std::uint64_t workspace;
  std::uint32_t alignment[4];
  std::uint32_t number;
  std::uint32_t bias;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t kMagic = 0x62617461676f6c65;

std::set<const void*>& alive() {
  static auto* all = new std::set<const void*>;
  return *all;
}

template <class Body>
cublasStatus_t lt_called(const char* name, Call::Kind kind, std::vector<int> errors, const Body& body) {
  Call call(name, kind, std::move(errors));
  if (call.fails()) {
    // After a failed kernel the library says that it could not run; a test names the status itself.
    return core().sticky != cudaSuccess ? CUBLAS_STATUS_EXECUTION_FAILED : static_cast<cublasStatus_t>(call.error());
  }
  return body();
}

template <class T, class... Args>
cublasStatus_t make(T** out, Args... args) {
  *out = new T{args...};
  alive().insert(*out);
  ++core().library_objects;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(const char* name, T* one) {
  const std::lock_guard lock(core().mutex);
  ++core().calls[name];
  if (alive().erase(one) == 0) {
    report(fmt::format("{}: it does not exist", name));
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  delete one;
  --core().library_objects;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
bool take(T& out, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return false;
  std::memcpy(&out, value, bytes);
  return true;
}

/// What is wrong with the shapes and types of D[m, n] = A^T[m, k] B[k, n], or null.
const char* wrong(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                  const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                  const cublasLtMatrixLayoutOpaque_t& d) {
  const std::uint64_t m = desc.transa == CUBLAS_OP_T ? a.cols : a.rows,
                      k = desc.transa == CUBLAS_OP_T ? a.rows : a.cols;
  if (b.rows != k) return "the inner sizes of A and B differ";
  if (d.rows != m || d.cols != b.cols || c.rows != m || c.cols != b.cols) return "C or D has another size";
  for (const auto* one : {&a, &b, &c, &d}) {
    if (one->ld < static_cast<std::int64_t>(one->rows)) return "a leading dimension is less than the rows";
  }
  if (a.type != b.type || c.type != d.type) return "the types of A and B, or of C and D, differ";
  const bool listed = (a.type == CUDA_R_16BF && (d.type == CUDA_R_16BF || d.type == CUDA_R_32F)) ||
                      (a.type == CUDA_R_32F && d.type == CUDA_R_32F);
  if (!listed) return "no row of the documentation's table has these types";
  if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS && desc.bias_type != -1 && desc.bias_type != d.type)
    return "the bias has another type than D";
  return nullptr;
}

std::size_t size_of(const cublasLtMatrixLayoutOpaque_t& layout) {
  const std::size_t element = layout.type == CUDA_R_32F ? 4 : 2;
  return (static_cast<std::size_t>(layout.ld) * (layout.cols - 1) + layout.rows) * element;
}

template <class Visit>
void for_columns(const void* data, const cublasLtMatrixLayoutOpaque_t& layout, const Visit& visit) {
  const std::size_t element = layout.type == CUDA_R_32F ? 4 : 2;
  for (std::size_t column = 0; column < layout.cols; ++column)
    visit(static_cast<const char*>(data) + column * static_cast<std::size_t>(layout.ld) * element,
          layout.rows * element);
}

void check_written(const void* data, const cublasLtMatrixLayoutOpaque_t& layout, const char* which) {
  for_columns(data, layout, [which](const void* column, std::size_t bytes) {
    if (const std::string byte = baton::simt::shadow().unwritten(column, bytes); !byte.empty())
      report(fmt::format("cublasLtMatmul reads {} in {}, which nothing has written", byte, which));
  });
}

void mark_written(const void* data, const cublasLtMatrixLayoutOpaque_t& layout) {
  for_columns(data, layout,
              [](const void* column, std::size_t bytes) { baton::simt::shadow().written(column, bytes); });
}

float element(const void* data, cudaDataType_t type, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return baton::bf16_to_f32(static_cast<const std::uint16_t*>(data)[i]);
}

}  // namespace

std::size_t cublasLtGetVersion() {
  const std::lock_guard lock(core().mutex);
  ++core().calls["cublasLtGetVersion"];
  return 130000;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "an unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return lt_called("cublasLtCreate", Call::not_captured,
                   {CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_INVALID_VALUE},
                   [&] { return make(handle, caller().device); });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy("cublasLtDestroy", handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return lt_called("cublasLtMatmulDescCreate", Call::plain, {CUBLAS_STATUS_ALLOC_FAILED}, [&] {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    return make(desc);
  });
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy("cublasLtMatmulDescDestroy", desc);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return lt_called("cublasLtMatmulDescSetAttribute", Call::plain, {CUBLAS_STATUS_INVALID_VALUE}, [&] {
    bool taken = false;
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        taken = take(desc->transa, value, bytes);
        break;
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        taken = take(desc->epilogue, value, bytes);
        break;
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        taken = take(desc->bias, value, bytes);
        break;
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        taken = take(desc->bias_type, value, bytes);
        break;
    }
    return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  return lt_called("cublasLtMatrixLayoutCreate", Call::plain, {CUBLAS_STATUS_ALLOC_FAILED},
                   [&] { return make(layout, type, rows, cols, ld); });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy("cublasLtMatrixLayoutDestroy", layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return lt_called("cublasLtMatmulPreferenceCreate", Call::plain, {CUBLAS_STATUS_ALLOC_FAILED},
                   [&] { return make(preference); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy("cublasLtMatmulPreferenceDestroy", preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return lt_called("cublasLtMatmulPreferenceSetAttribute", Call::plain, {CUBLAS_STATUS_INVALID_VALUE}, [&] {
    bool taken = false;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
      taken = take(preference->workspace, value, bytes);
    } else {
      taken = take(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    }
    return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  return lt_called("cublasLtMatmulAlgoGetHeuristic", Call::plain,
                   {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED}, [&] {
                     *found = 0;
                     if (!alive().contains(handle) || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
                     if (const char* what = wrong(*desc, *a, *b, *c, *d)) {
                       report(std::string("cublasLtMatmulAlgoGetHeuristic: ") + what);
                       return CUBLAS_STATUS_NOT_SUPPORTED;
                     }
                     for (int i = 0; i < std::min(wanted, kAlgorithms); ++i) {
                       Algorithm made{.magic = kMagic,
                                      .m = d->rows,
                                      .n = d->cols,
                                      .k = b->rows,
                                      .workspace = i == 1 ? std::min<std::uint64_t>(1 << 16, preference->workspace) : 0,
                                      .alignment = {},
                                      .number = static_cast<std::uint32_t>(i),
                                      .bias = desc->epilogue == CUBLASLT_EPILOGUE_BIAS ? 1u : 0u};
                       std::memcpy(made.alignment, preference->alignment, sizeof made.alignment);
                       cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
                       result = {};
                       std::memcpy(&result.algo, &made, sizeof made);
                       result.workspaceSize = made.workspace;
                     }
                     return CUBLAS_STATUS_SUCCESS;
                   });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  return lt_called("cublasLtMatmul", Call::of_device,
                   {CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED,
                    CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_EXECUTION_FAILED},
                   [&] {
                     CUstream_st* on = stream_of(stream);
                     if (!alive().contains(handle) || on == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
                     if (handle->device != caller().device || on->device != handle->device) {
                       report("cublasLtMatmul: the handle, the stream and the thread's device differ");
                       return CUBLAS_STATUS_INVALID_VALUE;
                     }
                     Algorithm chosen{};
                     std::memcpy(&chosen, algorithm, sizeof chosen);
                     const char* what = wrong(*desc, *a_layout, *b_layout, *c_layout, *d_layout);
                     if (what == nullptr && (chosen.magic != kMagic || chosen.m != d_layout->rows ||
                                             chosen.n != d_layout->cols || chosen.k != b_layout->rows))
                       what = "the algorithm was chosen for another product";
                     if (what == nullptr && chosen.bias != (desc->epilogue == CUBLASLT_EPILOGUE_BIAS ? 1u : 0u))
                       what = "the algorithm was chosen for another epilogue";
                     const void* operands[] = {a, b, c, d};
                     for (int i = 0; what == nullptr && i < 4; ++i) {
                       if (reinterpret_cast<std::uintptr_t>(operands[i]) % chosen.alignment[i] != 0)
                         what = "an operand has less alignment than the algorithm was chosen for";
                     }
                     if (what == nullptr && chosen.workspace > workspace_bytes) what = "the workspace is too small";
                     if (what == nullptr && reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)
                       what = "the workspace is not aligned to 256 bytes";
                     const bool biased = desc->epilogue == CUBLASLT_EPILOGUE_BIAS;
                     if (what == nullptr && biased && desc->bias == nullptr)
                       what = "an epilogue with a bias, and no bias";
                     if (what != nullptr) {
                       report(std::string("cublasLtMatmul: ") + what);
                       return CUBLAS_STATUS_INVALID_VALUE;
                     }
                     const auto la = *a_layout, lb = *b_layout, ld = *d_layout;
                     const float scale = *static_cast<const float*>(alpha), add = *static_cast<const float*>(beta);
                     const std::size_t m = ld.rows, n = ld.cols, k = lb.rows;
                     const bool transposed = desc->transa == CUBLAS_OP_T;
                     const auto* bias = static_cast<const float*>(desc->bias);
                     ++core().algorithms[static_cast<int>(chosen.number)];
                     const auto fits = [&](const void* data, std::size_t bytes, const char* which) {
                       if (!is_allocated(data, bytes))
                         report(std::string("cublasLtMatmul: no allocation holds ") + which);
                     };
                     fits(a, size_of(la), "A");
                     fits(b, size_of(lb), "B");
                     fits(d, size_of(ld), "D");
                     if (biased) fits(bias, m * sizeof(float), "the bias");
                     if (chosen.workspace > 0) fits(workspace, chosen.workspace, "the workspace");
                     // The second algorithm is the fastest.
                     const double cost = 6 + 2.0 * static_cast<double>(m) * static_cast<double>(n) *
                                                 static_cast<double>(k) / 1e6 * (chosen.number == 1 ? 1.0 : 1.5);
                     give(on, "cublasLtMatmul", cost, [=, used = chosen.workspace](const Work& work) {
                       if (!core().setup.runs_work) return;
                       check_written(a, la, "A");
                       check_written(b, lb, "B");
                       if (biased) check_written(bias, {.rows = m, .cols = 1}, "the bias");
                       if (add != 0) check_written(d, ld, "D");
                       run_kernel(work, [&] {
                         if (used > 0) std::memset(workspace, 0xff, used);
                         for (std::size_t column = 0; column < n; ++column) {
                           for (std::size_t row = 0; row < m; ++row) {
                             float sum = 0;
                             for (std::size_t i = 0; i < k; ++i) {
                               const std::size_t at = transposed ? row * static_cast<std::size_t>(la.ld) + i
                                                                 : i * static_cast<std::size_t>(la.ld) + row;
                               sum += element(a, la.type, at) *
                                      element(b, lb.type, column * static_cast<std::size_t>(lb.ld) + i);
                             }
                             const std::size_t to = column * static_cast<std::size_t>(ld.ld) + row;
                             const float before = add == 0 ? 0.0f : add * element(d, ld.type, to);
                             const float result = scale * sum + before + (biased ? bias[row] : 0.0f);
                             if (ld.type == CUDA_R_32F) {
                               static_cast<float*>(d)[to] = result;
                             } else {
                               static_cast<std::uint16_t*>(d)[to] = baton::f32_to_bf16(result);
                             }
                           }
                         }
                       });
                       mark_written(d, ld);
                     });
                     return CUBLAS_STATUS_SUCCESS;
                   });
}
