#include "engine/cuda/products.h"

#include <fmt/format.h>

#include <bit>

namespace baton::cuda {
namespace {

// Prefill lengths vary without end: when that many plans are kept, all are made anew.
constexpr std::size_t kMostPlans = 4096;

/// The power of two, up to 256, that an address is a multiple of.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256u;
  return 1u << std::countr_zero(address);
}

}  // namespace

// The library thinks in columns: with W [N, C] and x [T, C] by rows it computes out^T [N, T] = (W^T)^T x^T.
struct Products::Plan {
  explicit Plan(const CublasLt& lt_in) : lt(lt_in) {}
  ~Plan() {
    for (const cublasLtMatrixLayout_t layout : {w, x, out}) {
      if (layout != nullptr) lt.layout_destroy(layout);
    }
    if (desc != nullptr) lt.desc_destroy(desc);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CublasLt& lt;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

Products::Products() { BATON_CUBLAS_CHECK(lt_, create(&handle_)); }

Products::~Products() {
  plans_.clear();
  lt_.destroy(handle_);
}

Products::Plan& Products::plan_for(const Product& p) {
  const std::array<std::uint32_t, 3> aligned = {alignment_of(p.w), alignment_of(p.x), alignment_of(p.out)};
  const Key key = {p.t,
                   p.n,
                   p.c,
                   p.out_stride,
                   p.x_stride,
                   p.w_stride,
                   p.dtype == DType::bf16,
                   p.bias != nullptr,
                   aligned[0],
                   aligned[1],
                   aligned[2]};
  if (const auto known = plans_.find(key); known != plans_.end()) return *known->second;
  if (plans_.size() >= kMostPlans) plans_.clear();

  auto plan = std::make_unique<Plan>(lt_);
  const cudaDataType_t type = p.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    BATON_CUBLAS_CHECK(lt_, desc_set(plan->desc, attribute, &value, sizeof(value)));
  };
  BATON_CUBLAS_CHECK(lt_, desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const auto columns = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  BATON_CUBLAS_CHECK(lt_, layout_create(&plan->w, type, columns(p.c), columns(p.n), p.w_stride));
  BATON_CUBLAS_CHECK(lt_, layout_create(&plan->x, type, columns(p.c), columns(p.t), p.x_stride));
  BATON_CUBLAS_CHECK(lt_, layout_create(&plan->out, CUDA_R_32F, columns(p.n), columns(p.t), p.out_stride));

  cublasLtMatmulPreference_t made = nullptr;
  BATON_CUBLAS_CHECK(lt_, preference_create(&made));
  const auto destroy = [this](cublasLtMatmulPreference_t preference) { lt_.preference_destroy(preference); };
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(destroy)> preference(made, destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    BATON_CUBLAS_CHECK(lt_, preference_set(preference.get(), attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      lt_.heuristic(handle_, plan->desc, plan->w, plan->x, plan->out, plan->out, preference.get(), 1, &best, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS) {
    throw BackendError(fmt::format("cuBLASLt: no algorithm for [{}, {}] times [{}, {}] in {}: {}", p.t, p.c, p.n, p.c,
                                   name_of(p.dtype), lt_.status_string(status)));
  }
  plan->algorithm = best.algo;
  return *(plans_[key] = std::move(plan));
}

void Products::multiply(const Product& p, void* workspace, Stream stream) {
  Plan& plan = plan_for(p);
  if (p.bias != nullptr) {
    BATON_CUBLAS_CHECK(lt_, desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof(p.bias)));
  }
  const float one = 1.0f, zero = 0.0f;
  BATON_CUBLAS_CHECK(lt_,
                     matmul(handle_, plan.desc, &one, p.w, plan.w, p.x, plan.x, &zero, p.out, plan.out, p.out, plan.out,
                            &plan.algorithm, workspace, kWorkspaceBytes, static_cast<cudaStream_t>(stream.native)));
}

}  // namespace baton::cuda
