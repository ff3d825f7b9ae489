// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/rectify/corrections.h"

#include <numeric>

#include "engine/reuse/placement.h"

namespace baton {

void Corrector::use(std::shared_ptr<const Corrections> corrections) {
  if (corrections == corrections_) return;
  loaded_.clear();
  corrections_ = std::move(corrections);
}

std::shared_ptr<const LinearCorrection> Corrector::find(const PlaceKey& place) const {
  if (!corrections_) return nullptr;
  const auto found = corrections_->find({place.context, place.slot, {}});
  if (found == corrections_->end()) return nullptr;
  return found->second->shape == width_of(model_.kv_layout()) ? found->second : nullptr;
}

const Corrector::Loaded& Corrector::load(const LinearCorrection& correction) {
  const auto [entry, added] = loaded_.try_emplace(&correction);
  if (added) {
    const auto matrix = [&](const std::vector<std::uint16_t>& bits, std::int64_t rows, std::int64_t cols) {
      const ConstTensorView view =
          BasicView<const std::byte>{reinterpret_cast<const std::byte*>(bits.data()), DType::bf16, rows, cols, cols};
      return backend_.load_matrix({&view, 1}, DType::bf16);
    };
    try {
      entry->second.encoder = matrix(correction.encoder, correction.rank, correction.inputs());
      entry->second.decoder = matrix(correction.decoder, correction.outputs(), correction.rank);
    } catch (...) {
      loaded_.erase(entry);
      throw;
    }
  }
  return entry->second;
}

/// Returns the change of each token's KV, [n, outputs] bf16 in backend memory.
Buffer Corrector::changes(const Segment& segment, const LinearCorrection& correction) {
  const Loaded& map = load(correction);
  const std::int64_t n = segment.length();
  const std::int64_t inputs = correction.inputs(), outputs = correction.outputs(), rank = correction.rank;
  const auto matrix = [&](DType dtype, std::int64_t cols) {
    return backend_.allocate_uninitialized(static_cast<std::size_t>(n * cols) * size_of(dtype));
  };
  std::vector<std::int32_t> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  const Buffer kv = matrix(DType::f32, inputs), code = matrix(DType::f32, rank), change = matrix(DType::f32, outputs);
  const TensorView x = kv.view(DType::f32, n, inputs);
  for (std::int32_t layer = 0; layer < correction.shape.layers(); ++layer) {
    const std::int64_t at = 2 * correction.shape.before(layer), width = correction.shape.layer(layer);
    if (width == 0) continue;
    backend_.gather_rows(x.col_range(at, at + width), segment.raw_keys(layer), all);
    backend_.gather_rows(x.col_range(at + width, at + 2 * width), segment.values(layer), all);
  }
  backend_.matmul(code.view(DType::f32, n, rank), x, *map.encoder, {});
  backend_.matmul(change.view(DType::f32, n, outputs), code.view(DType::f32, n, rank), *map.decoder, correction.bias);
  Buffer result = matrix(DType::bf16, outputs);
  backend_.gather_rows(result.view(DType::bf16, n, outputs), change.view(DType::f32, n, outputs), all);
  return result;
}

void Corrector::insert(RopeTable& angles, KvCache& cache, std::int32_t position, const Segment& segment,
                       std::int32_t first, const LinearCorrection& correction) {
  const std::int32_t n = segment.length() - first;
  if (n <= 0) return;
  const Buffer change = changes(segment, correction);
  const TensorView rows = change.view(DType::bf16, segment.length(), correction.outputs());
  const std::int64_t first_layer = correction.shape.layer(0);
  std::vector<std::int32_t> row(static_cast<std::size_t>(n));
  std::iota(row.begin(), row.end(), first);
  const auto change_of = [&](std::int32_t layer) {
    const std::int64_t begin = 2 * (correction.shape.before(layer) - first_layer);
    return rows.col_range(begin, begin + 2 * correction.shape.layer(layer));
  };
  const CorrectionSource source{change_of, row, 1.0f, 1};
  place_corrected(backend_, angles, cache, {position + first, &segment, first, n}, position + first, {&source, 1});
}

}  // namespace baton
