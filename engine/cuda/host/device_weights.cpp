// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/device_weights.h"

#include <stdexcept>

#include "engine/backend/checks.h"

namespace baton::cuda {
namespace {

/// Rows of a matrix are padded with zeros to a multiple of this many elements, so that every row is aligned to 16
/// bytes.
constexpr std::int64_t kRowUnit = 8;

}  // namespace

DeviceMatrix::DeviceMatrix(Runtime& runtime, std::int64_t rows_in, std::int64_t cols_in, DType dtype_in)
    : stride(round_up(cols_in, kRowUnit)), runtime_(runtime) {
  rows = rows_in;
  cols = cols_in;
  dtype = dtype_in;
  bytes = checked_bytes("load_matrix", rows, stride, size_of(dtype));
  data = static_cast<std::byte*>(runtime_.allocate(bytes));
}

const DeviceMatrix& device(const Matrix& matrix) {
  const auto* ours = dynamic_cast<const DeviceMatrix*>(&matrix);
  if (ours == nullptr) throw std::invalid_argument("the matrix belongs to another backend");
  return *ours;
}

Buffer KeptVectors::keep(std::span<const float> values) {
  if (values.empty()) return {};
  Buffer kept{this, runtime_.allocate(values.size_bytes()), values.size_bytes()};
  staging_.to_device(kept.data(), std::as_bytes(values));
  constant_[values.data()] = std::span(reinterpret_cast<const float*>(kept.data()), values.size());
  return kept;
}

void KeptVectors::release(void* data, std::size_t /*bytes*/) noexcept {
  std::erase_if(constant_, [&](const auto& entry) { return entry.second.data() == data; });
  runtime_.release(data);
}

const float* KeptVectors::put(std::span<const float> values) {
  if (values.empty()) return nullptr;
  const auto known = constant_.find(values.data());
  if (known != constant_.end() && known->second.size() == values.size()) return known->second.data();
  auto& kept = vectors_[values.data()];
  if (kept == nullptr) kept = std::make_unique<KeptArrays>(runtime_, staging_);
  return kept->put(values);
}

}  // namespace baton::cuda
