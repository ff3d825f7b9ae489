// SPDX-License-Identifier: Apache-2.0
// Checks at the border of every backend: all backends refuse the same calls with the same messages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/backend/backend.h"

namespace baton {

inline constexpr std::int32_t kMaxHeadDim = 256;

/// All checks throw std::invalid_argument with the expected and the actual value.
void check_shape(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols);
/// Checks a view that is f32 or of type `operand`.
void check_operand(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols,
                   DType operand);
void check_length(std::string_view name, std::size_t length, std::int64_t expected);
void check_index(std::string_view name, std::span<const std::int32_t> index, std::int64_t end);

/// Checks that the parts of a weight have equal widths and data, that `dtype` can be stored and that its products can
/// take such activations. Returns the total rows.
std::int64_t check_parts(std::span<const ConstTensorView> parts, DType dtype, Activations activations);

/// Checks that the quantised parts of a weight have equal widths of whole blocks. Returns the total rows.
std::int64_t check_quantized_parts(std::span<const BlockRows> parts);

/// Returns rows * cols * element_bytes; throws std::invalid_argument when a factor is negative or the product
/// overflows.
std::size_t checked_bytes(std::string_view name, std::int64_t rows, std::int64_t cols, std::size_t element_bytes);

// `operand` is the result of the backend's operand_type, `gate` that of its gate_type.
void check_matmul(const ConstTensorView& out, const ConstTensorView& x, const Matrix& w, std::span<const float> bias,
                  DType operand = DType::f32, DType gate = DType::f32);
void check_rms_norm(const ConstTensorView& out, const ConstTensorView& x, std::span<const float> weight,
                    DType operand = DType::f32);
void check_head_norm(const ConstTensorView& x, std::span<const float> weight);
void check_angles(const RopeAngles& angles, std::int64_t rows, std::int32_t head_dim);
void check_rope(const ConstTensorView& x, std::int32_t head_dim, const RopeAngles& angles);
void check_kv_shape(const KvShape& shape);
void check_capacity(std::int32_t capacity);
enum class NoSequence : std::uint8_t { refused, passed_over };
void check_rows(std::span<const KvSlab> slabs, const RowSpan& rows, NoSequence none = NoSequence::refused);
void check_store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, const ConstTensorView& k,
                    const ConstTensorView& v, const RopeAngles& angles);
void check_insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                     std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                     std::span<const KvCorrection> corrections, const RopeAngles& angles);
void check_load_kv(const ConstTensorView& k, const ConstTensorView& v, const KvSlab& slab, const KvShape& shape,
                   std::int32_t begin);
void check_align(const ConstTensorView& sketches, std::span<const TextPair> pairs);
void check_save_kv(const ConstTensorView& raw_k, const ConstTensorView& v, const KvSlab& slab, const KvShape& shape,
                   std::int32_t begin);
void check_value_deviation(std::size_t out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                           const ConstTensorView& v);
void check_attention(const ConstTensorView& out, const ConstTensorView& q, std::span<const KvSlab> slabs,
                     const KvShape& shape, const RowSpan& rows, std::span<AttentionSum* const> received,
                     DType operand = DType::f32);
/// Checks the views of gather_rows and scatter_rows: each is f32 or bf16.
void check_copy_rows(std::string_view name, const ConstTensorView& some, const ConstTensorView& all,
                     std::span<const std::int32_t> index);
/// Checks the views of silu_mul and gelu_mul.
void check_gate(const ConstTensorView& out, const ConstTensorView& gate_up, DType operand = DType::f32,
                DType gate = DType::f32);
void check_weighted_rows(const ConstTensorView& x, const ConstTensorView& in, std::span<const std::int32_t> index,
                         std::span<const float> weight);
void check_soft_cap(const ConstTensorView& x, float cap);

}  // namespace baton
