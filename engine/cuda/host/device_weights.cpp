// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/device_weights.h"

#include <algorithm>
#include <stdexcept>

#include "engine/backend/checks.h"
#include "engine/cuda/kernels/kernels.h"

namespace baton::cuda {
namespace {

/// Rows of a matrix are padded with zeros to a multiple of this many elements, so that every row is aligned to 16
/// bytes.
constexpr std::int64_t kRowUnit = 8;
constexpr std::int64_t kLoadedBytes = std::int64_t{16} << 20;  // of host memory that is uploaded at once

}  // namespace

DeviceMatrix::DeviceMatrix(Runtime& runtime, std::int64_t rows_in, std::int64_t cols_in, DType dtype_in)
    : stride(round_up(cols_in, kRowUnit)), runtime_(runtime) {
  rows = rows_in;
  cols = cols_in;
  dtype = dtype_in;
  bytes = checked_bytes("load_matrix", rows, stride, size_of(dtype));
  data = static_cast<std::byte*>(runtime_.allocate(bytes));
}

void DeviceMatrix::load(std::int64_t first, const ConstTensorView& part, Stream stream, Staging& staging,
                        DeviceScratch& scratch) {
  const auto element = static_cast<std::int64_t>(size_of(part.dtype));
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kLoadedBytes / (part.stride * element));
  for (std::int64_t row = 0; row < part.rows; row += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, part.rows - row);
    const ConstTensorView piece = part.row_range(row, row + count);
    // Without the last row's padding, which may lie outside of the part.
    const std::int64_t piece_bytes = ((count - 1) * part.stride + part.cols) * element;
    const TensorView target{data + (first + row) * stride * static_cast<std::int64_t>(size_of(dtype)), dtype, count,
                            stride, stride};
    const bool same = part.dtype == dtype && part.stride == stride && part.cols == stride;
    std::byte* sent = same ? target.data : scratch.reserve<std::byte>(piece_bytes);
    staging.to_device(sent, {piece.data, static_cast<std::size_t>(piece_bytes)});
    if (same) continue;
    launch_copy_rows(stream, target, nullptr,
                     BasicView<const std::byte>{sent, part.dtype, count, part.cols, part.stride}, nullptr, count);
  }
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
