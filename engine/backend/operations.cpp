// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/operations.h"

#include "engine/backend/checks.h"

namespace baton {

void Operations::norm_store_rope(TensorView q, TensorView k, ConstTensorView v, const HeadNorms& norms,
                                 std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                                 const RopeAngles& angles) {
  if (!norms.q.empty()) head_rms_norm(q, norms.q, norms.eps);
  if (!norms.k.empty()) head_rms_norm(k, norms.k, norms.eps);
  store_kv(slabs, shape, rows, k, v, angles);
  rope(q, shape.head_dim, angles);
}

void Operations::choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how) {
  check_shape("choose logits", logits, static_cast<std::int64_t>(how.size()), logits.cols);
  for (std::size_t i = 0; i < how.size(); ++i) {
    const auto* row = reinterpret_cast<const float*>(logits.data) + static_cast<std::int64_t>(i) * logits.stride;
    out[i] = chooser_.choose({row, static_cast<std::size_t>(logits.cols)}, how[i]);
  }
}

}  // namespace baton
