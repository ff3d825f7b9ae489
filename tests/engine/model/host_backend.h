// SPDX-License-Identifier: Apache-2.0
// A backend that can only keep weights, as plain floats that a test can look into.
#pragma once

#include <stdexcept>
#include <vector>

#include "engine/backend/backend.h"

namespace baton::test {

struct HostMatrix : Matrix {
  std::vector<float> values;  // [rows, cols]
};

inline const HostMatrix& host(const Matrix& matrix) { return dynamic_cast<const HostMatrix&>(matrix); }

class HostBackend : public Backend {
 public:
  KvOperations& kv() override { unused(); }
  Recurrence& recurrence() override { unused(); }
  StreamOperations& streams() override { unused(); }
  void multiply(TensorView, ConstTensorView, GateFunction) override { unused(); }
  std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype,
                                      Activations /*activations*/) override {
    auto matrix = std::make_unique<HostMatrix>();
    matrix->cols = parts.front().cols;
    matrix->dtype = dtype;
    for (const ConstTensorView& part : parts) {
      if (part.cols != matrix->cols) throw std::invalid_argument("load_matrix: parts of different widths");
      for (std::int64_t row = 0; row < part.rows; ++row)
        for (std::int64_t col = 0; col < part.cols; ++col) matrix->values.push_back(read(part, row, col));
      matrix->rows += part.rows;
    }
    matrix->bytes = matrix->values.size() * size_of(dtype);
    return matrix;
  }

  BackendInfo info() const override { return {"host", "weights only", 1}; }
  void release(void*, std::size_t) noexcept override {}
  Buffer allocate(std::size_t) override { unused(); }
  void copy_to_device(std::byte*, std::span<const std::byte>) override { unused(); }
  void copy_to_host(std::span<std::byte>, const std::byte*) override { unused(); }
  std::size_t kv_slab_bytes(const KvShape&, std::int32_t) const override { unused(); }
  DType operand_type(DType) const override { return DType::f32; }
  void embed(TensorView, const Matrix&, std::span<const std::int32_t>) override { unused(); }
  void rms_norm(TensorView, ConstTensorView, std::span<const float>, float) override { unused(); }
  void add_rms_norm(TensorView, TensorView, ConstTensorView, std::span<const float>, float) override { unused(); }
  void add(TensorView, ConstTensorView) override { unused(); }
  void head_rms_norm(TensorView, std::span<const float>, float) override { unused(); }
  void matmul(TensorView, ConstTensorView, const Matrix&, std::span<const float>) override { unused(); }
  void rope(TensorView, std::int32_t, const RopeAngles&) override { unused(); }
  void silu_mul(TensorView, ConstTensorView, const ClampedGate&) override { unused(); }
  void gelu_mul(TensorView, ConstTensorView) override { unused(); }
  void add_weighted_rows(TensorView, ConstTensorView, std::span<const std::int32_t>, std::span<const float>) override {
    unused();
  }
  void scale(TensorView, float) override { unused(); }
  void soft_cap(TensorView, float) override { unused(); }
  void gather_rows(TensorView, ConstTensorView, std::span<const std::int32_t>) override { unused(); }
  void scatter_rows(TensorView, ConstTensorView, std::span<const std::int32_t>) override { unused(); }

 private:
  static float read(const ConstTensorView& view, std::int64_t row, std::int64_t col) {
    if (view.dtype == DType::f32) return view.f32(row)[col];
    const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(view.data)[row * view.stride + col];
    return view.dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  [[noreturn]] static void unused() { throw std::logic_error("HostBackend only keeps weights"); }
};

}  // namespace baton::test
