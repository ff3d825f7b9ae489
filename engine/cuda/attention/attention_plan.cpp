// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/attention/attention.h"

#include <algorithm>
#include <numeric>

namespace baton::cuda {
namespace {

// Splits of fewer keys cost more for merging than they gain from running concurrently. This bound is not measured.
constexpr std::int32_t kMinSplitKeys = 4 * kKeyBlock;

std::int32_t blocks_between(std::int32_t begin, std::int32_t end) {
  return (end + kKeyBlock - 1) / kKeyBlock - begin / kKeyBlock;
}

/// Rounds up to a number with two significant binary digits: 1, 2, 3, 4, 6, 8, 12, ...
std::int32_t rounded_up(std::size_t count) {
  std::size_t unit = 1;
  while (4 * unit <= count) unit *= 2;
  return static_cast<std::int32_t>((count + unit - 1) / unit * unit);
}

}  // namespace

void AttentionPlan::pad() {
  constexpr AttentionTile kNoTile{0, 0, 0, 0, 0, 0, 0, -1, 0};
  narrow_.resize(static_cast<std::size_t>(rounded_up(narrow_.size())), kNoTile);
  wide_.resize(static_cast<std::size_t>(rounded_up(wide_.size())), kNoTile);
  merges_.resize(static_cast<std::size_t>(rounded_up(merges_.size())), MergeRow{0, 0, 0, 0});
  slots_ = rounded_up(static_cast<std::size_t>(slots_));
  score_rows_ = rounded_up(static_cast<std::size_t>(score_rows_));
}

bool AttentionPlan::is_made_for(const RowSpan& rows, const AttentionShape& shape, std::int32_t blocks, bool padded) {
  asked_for_.assign({shape.heads, shape.kv_heads, blocks, padded ? 1 : 0});
  for (const auto& part : {rows.sequence, rows.position, rows.key_begin})
    asked_for_.insert(asked_for_.end(), part.begin(), part.end());
  if (asked_for_ == made_for_) return true;
  made_for_.swap(asked_for_);
  return false;
}

void AttentionPlan::make(const RowSpan& rows, const AttentionShape& shape, std::int32_t blocks, bool padded) {
  if (is_made_for(rows, shape, blocks, padded)) return;
  const auto count = static_cast<std::size_t>(rows.size());
  rows_.clear();
  narrow_.clear();
  wide_.clear();
  merges_.clear();
  slots_ = score_rows_ = 0;
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    if (rows.sequence[i] != rows.sequence[j]) return rows.sequence[i] < rows.sequence[j];
    if (rows.position[i] != rows.position[j]) return rows.position[i] < rows.position[j];
    return a < b;
  };
  if (!std::is_sorted(order_.begin(), order_.end(), before)) std::sort(order_.begin(), order_.end(), before);
  for (const std::int32_t row : order_) {
    const auto i = static_cast<std::size_t>(row);
    rows_.push_back({row, rows.key_begin[i], rows.position[i] + 1});
  }
  const std::int32_t narrow = std::max(1, kNarrowRows / shape.part_heads());
  const std::int32_t wide = kWideRows / shape.part_heads();
  for (std::size_t begin = 0; begin < count;) {  // runs of one sequence
    const std::int32_t sequence = rows.sequence[static_cast<std::size_t>(order_[begin])];
    std::size_t end = begin + 1;
    while (end < count && rows.sequence[static_cast<std::size_t>(order_[end])] == sequence) ++end;
    const auto run = static_cast<std::int32_t>(end - begin);
    // Up to two narrow tiles, which each read the keys, are cheaper than a wide tile that is mostly empty.
    const bool is_wide = run > 2 * narrow;
    cut(is_wide ? wide_ : narrow_, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end), sequence,
        is_wide ? wide : narrow);
    begin = end;
  }
  const std::int64_t heads = std::int64_t{shape.kv_heads} * shape.parts();
  split(narrow_, heads, blocks);
  split(wide_, heads, blocks);
  for (AttentionTile& tile : narrow_) {
    tile.scores = score_rows_;
    score_rows_ += blocks_between(tile.key_begin, tile.key_end) * tile.rows * shape.part_heads();
  }
  // Tiles with most keys go first, so that the last blocks to start are short.
  const auto longer = [](const AttentionTile& a, const AttentionTile& b) {
    return a.key_end - a.key_begin > b.key_end - b.key_begin;
  };
  std::stable_sort(wide_.begin(), wide_.end(), longer);
  if (padded) pad();
}

/// Cuts the sorted rows [begin, end) of one sequence into tiles of at most tile_rows rows. A tile's keys have no gap
/// that no row sees: such keys may never have been written, and a NaN times a weight of zero is a NaN.
void AttentionPlan::cut(std::vector<AttentionTile>& out, std::int32_t begin, std::int32_t end, std::int32_t sequence,
                        std::int32_t tile_rows) {
  for (std::int32_t first = begin; first < end;) {
    const TileRow& top = rows_[static_cast<std::size_t>(first)];
    AttentionTile tile{sequence, first, 0, top.key_begin, top.key_end, top.key_begin, top.key_end, -1, 0};
    std::int32_t row = first;
    for (; row < end && row < first + tile_rows; ++row) {
      const TileRow& r = rows_[static_cast<std::size_t>(row)];
      if (r.key_begin > tile.key_end) break;
      tile.key_begin = std::min(tile.key_begin, r.key_begin);
      tile.key_end = std::max(tile.key_end, r.key_end);
      tile.free_begin = std::max(tile.free_begin, r.key_begin);
      tile.free_end = std::min(tile.free_end, r.key_end);
    }
    tile.rows = row - first;
    out.push_back(tile);
    first = row;
  }
}

/// Splits the tiles' keys at multiples of one length, so that there are about `blocks` blocks.
void AttentionPlan::split(std::vector<AttentionTile>& tiles, std::int64_t heads, std::int32_t blocks) {
  if (tiles.empty() || static_cast<std::int64_t>(tiles.size()) * heads >= blocks) return;
  std::int64_t work = 0;  // key blocks of all tiles and heads
  for (const AttentionTile& tile : tiles) work += blocks_between(tile.key_begin, tile.key_end) * heads;
  const std::int64_t share = (work + blocks - 1) / blocks * kKeyBlock;
  const auto length = static_cast<std::int32_t>(std::max<std::int64_t>(kMinSplitKeys, share));
  split_.clear();
  for (const AttentionTile& tile : tiles) {
    const std::int32_t first = tile.key_begin / length, last = (tile.key_end - 1) / length;
    const std::int32_t splits = last - first + 1;
    for (std::int32_t s = 0; s < splits; ++s) {
      AttentionTile part = tile;
      part.key_begin = std::max(tile.key_begin, (first + s) * length);
      part.key_end = std::min(tile.key_end, (first + s + 1) * length);
      if (splits > 1) part.partial = slots_ + s * tile.rows;
      split_.push_back(part);
    }
    if (splits == 1) continue;
    for (std::int32_t r = 0; r < tile.rows; ++r) {
      merges_.push_back({rows_[static_cast<std::size_t>(tile.row_begin) + static_cast<std::size_t>(r)].row, slots_ + r,
                         splits, tile.rows});
    }
    slots_ += splits * tile.rows;
  }
  tiles.swap(split_);
}

}  // namespace baton::cuda
