// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/text_pairs.h"

namespace baton::cuda {
namespace {

constexpr std::int64_t kWidth = 2 * editing::kBand;
constexpr std::int64_t kMaxCellRows = std::int64_t{1} << 18;  // rows of cells per batch: 256 MiB

std::int64_t size_of(std::span<const std::int32_t> text) { return static_cast<std::int64_t>(text.size()); }

}  // namespace

std::vector<Alignment> TextPairs::align(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs) {
  std::vector<Alignment> alignments;
  while (!pairs.empty()) {
    std::size_t count = 0;
    for (std::int64_t rows = 0; count < pairs.size(); ++count) {
      rows += size_of(pairs[count].text);
      if (count > 0 && rows > kMaxCellRows) break;
    }
    align_some(stream, sketches, pairs.first(count), alignments);
    pairs = pairs.subspan(count);
  }
  return alignments;
}

void TextPairs::align_some(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs,
                           std::vector<Alignment>& alignments) {
  std::vector<std::int32_t> sent;  // all texts; a text of consecutive pairs is stored once
  std::vector<std::size_t> at;     // where the two texts of each pair begin in `sent`
  std::int64_t rows = 0;
  for (const TextPair& pair : pairs) {
    const bool again = !at.empty() && pair.text.data() == pairs[at.size() / 2 - 1].text.data() &&
                       pair.text.size() == pairs[at.size() / 2 - 1].text.size();
    at.push_back(again ? at[at.size() - 2] : sent.size());
    if (!again) sent.insert(sent.end(), pair.text.begin(), pair.text.end());
    at.push_back(sent.size());
    sent.insert(sent.end(), pair.other.begin(), pair.other.end());
    rows += size_of(pair.text);
  }
  const auto count = static_cast<std::int64_t>(pairs.size());
  DeviceScratch texts(runtime_), cells(runtime_), made(runtime_), described(runtime_);
  auto* ids = texts.reserve<std::int32_t>(std::max<std::int64_t>(1, size_of(sent)));
  auto* cell = cells.reserve<std::uint16_t>(std::max<std::int64_t>(1, rows) * kWidth);
  auto* result = made.reserve<std::int32_t>(2 * rows + count);  // counterparts and mismatches, then the costs
  std::vector<DevicePair> all;
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const TextPair& pair = pairs[static_cast<std::size_t>(i)];
    const auto n = static_cast<std::int32_t>(pair.text.size());
    all.push_back({ids + at[static_cast<std::size_t>(2 * i)], ids + at[static_cast<std::size_t>(2 * i) + 1],
                   cell + row * kWidth, result + row, result + rows + row, result + 2 * rows + i, n,
                   static_cast<std::int32_t>(pair.other.size())});
    row += n;
  }
  staging_.to_device(ids, std::as_bytes(std::span(sent)));
  auto* device_pairs = described.reserve<DevicePair>(count);
  staging_.to_device(device_pairs, std::as_bytes(std::span(all)));
  launch_align(stream, device_pairs, count, sketches);
  std::vector<std::int32_t> back(static_cast<std::size_t>(2 * rows + count));
  staging_.to_host(std::as_writable_bytes(std::span(back)), result);
  row = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t n = size_of(pairs[static_cast<std::size_t>(i)].text);
    Alignment& alignment = alignments.emplace_back();
    const auto first = back.begin() + row;
    alignment.to.assign(first, first + n);
    for (std::int64_t k = 0; k < n; ++k) alignment.mismatch.push_back(editing::in_ones(first[rows + k]));
    if (n > 0)
      alignment.distance = editing::in_ones(back[static_cast<std::size_t>(2 * rows + i)]) / static_cast<float>(n);
    row += n;
  }
}

}  // namespace baton::cuda
