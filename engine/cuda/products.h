// Matrix products by cuBLASLt: one plan (descriptors and the algorithm that the library's heuristics choose) per shape,
// kept; one workspace, given by the owner.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "engine/cuda/cublas_lt.h"
#include "engine/cuda/runtime.h"

namespace baton::cuda {

/// Threads: one caller at a time.
class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// Queues the product on the stream.
  void multiply(const Product& product, void* workspace, Stream stream);

 private:
  struct Plan;
  using Key = std::array<std::int64_t, 11>;
  Plan& plan_for(const Product& product);

  CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace baton::cuda
