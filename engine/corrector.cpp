#include "engine/corrector.h"

#include <numeric>

#include "engine/kv_on_host.h"
#include "engine/reuse/placement.h"

namespace baton {

void Corrector::use(std::shared_ptr<const Corrections> corrections) {
  if (corrections == corrections_) return;
  loaded_.clear();
  corrections_ = std::move(corrections);
}

std::shared_ptr<const LinearCorrection> Corrector::find(const AnchorKey& place) const {
  if (!corrections_) return nullptr;
  const auto found = corrections_->find({place.context, place.slot, {}});
  if (found == corrections_->end()) return nullptr;
  const ModelConfig& config = model_.config;
  const bool fits = found->second->shape == AnchorShape{config.layers, config.kv_heads * config.head_dim};
  return fits ? found->second : nullptr;
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

/// [L - 1, n, 2 K D] bf16.
std::vector<std::uint16_t> Corrector::changes(const Segment& segment, const LinearCorrection& correction) {
  const Loaded& map = load(correction);
  const auto n = static_cast<std::size_t>(segment.length());
  const auto width = static_cast<std::size_t>(2 * correction.shape.width);
  const auto inputs = static_cast<std::size_t>(correction.inputs());
  const auto outputs = static_cast<std::size_t>(correction.outputs());
  const std::vector<std::uint16_t> kv = kv_on_host(backend_, segment);
  std::vector<float> rows(n * inputs);
  for (std::size_t at = 0; at < kv.size(); ++at) {
    const std::size_t layer = at / (n * width), token = at / width % n;
    rows[token * inputs + layer * width + at % width] = bf16_to_f32(kv[at]);
  }
  const auto rank = static_cast<std::size_t>(correction.rank);
  const Buffer memory = backend_.allocate(n * (inputs + rank + outputs) * sizeof(float));
  const auto view = [&](std::size_t begin, std::size_t cols) {
    TensorView part = memory.view(DType::f32, static_cast<std::int64_t>(n), static_cast<std::int64_t>(cols));
    part.data += begin * sizeof(float);
    return part;
  };
  const TensorView x = view(0, inputs), code = view(n * inputs, rank), change = view(n * (inputs + rank), outputs);
  backend_.copy_to_device(x.data, std::as_bytes(std::span(rows)));
  backend_.matmul(code, x, *map.encoder, {});
  backend_.matmul(change, code, *map.decoder, correction.bias);
  rows.resize(n * outputs);
  backend_.copy_to_host(std::as_writable_bytes(std::span(rows)), change.data);
  std::vector<std::uint16_t> result(n * outputs);
  for (std::size_t at = 0; at < result.size(); ++at) {
    const std::size_t layer = at / (n * width), token = at / width % n;
    result[at] = f32_to_bf16(rows[token * outputs + layer * width + at % width]);
  }
  return result;
}

void Corrector::place(KvCache& cache, std::int32_t position, const Segment& segment, std::int32_t first,
                      const LinearCorrection& correction) {
  const std::int32_t n = segment.length() - first;
  if (n <= 0) return;
  const std::vector<std::uint16_t> change = changes(segment, correction);
  const std::size_t layer_size = change.size() / static_cast<std::size_t>(correction.shape.layers - 1);
  std::vector<std::int32_t> row(static_cast<std::size_t>(n));
  std::iota(row.begin(), row.end(), first);
  const CorrectionSource source{[&](std::int32_t layer) {
                                  return std::span(change).subspan(static_cast<std::size_t>(layer - 1) * layer_size,
                                                                   layer_size);
                                },
                                row, 1.0f, 1};
  place_corrected(backend_, model_.rope, cache, position + first, position + first, &segment, first, n, {&source, 1});
}

}  // namespace baton
