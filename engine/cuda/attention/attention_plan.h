// SPDX-License-Identifier: Apache-2.0
// How the rows of one attention call are cut into blocks of work: rows of one sequence that see overlapping keys share
// a tile, tiles with many keys are split. Host logic only; what it promises is tested without a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cuda/host/types.h"

namespace baton::cuda {

/// A row as the tiles see it.
struct TileRow {
  std::int32_t row;        // of the call
  std::int32_t key_begin;  // sees keys [key_begin, key_end)
  std::int32_t key_end;
};

/// One block's work for one kv head (and one part of its query heads): rows of one sequence over a range of keys.
struct AttentionTile {
  std::int32_t sequence;
  std::int32_t row_begin;  // of the sorted rows
  std::int32_t rows;       // 0: nothing to do
  std::int32_t key_begin;  // keys [key_begin, key_end); inner limits of split tiles are multiples of kKeyBlock
  std::int32_t key_end;
  std::int32_t free_begin;  // keys [free_begin, free_end) are seen by every row: no masking there
  std::int32_t free_end;
  std::int32_t partial;  // first slot of the rows' partial results; -1: the tile sees all keys and writes its output
  std::int32_t scores;   // of narrow tiles: where their scores are kept, in rows of kKeyBlock scores per kv head part
};

/// A row whose result is merged from `splits` slots, `stride` apart, beginning at `partial`.
struct MergeRow {
  std::int32_t row;
  std::int32_t partial;
  std::int32_t splits;  // 0: nothing to do
  std::int32_t stride;
};

/// Packed rows of the two kinds of tile: (row, query head) pairs of one kv head. Narrow tiles are for decode: their
/// warps share the rows and divide the keys. Wide tiles are for prefill: their warps divide the rows.
inline constexpr std::int32_t kNarrowRows = 16;
inline constexpr std::int32_t kWideRows = 64;
/// Query heads of a kv head beyond that many go to further blocks.
inline constexpr std::int32_t kMaxPartHeads = 16;

struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t group() const { return heads / kv_heads; }
  /// Query heads that one block takes, and how many blocks that makes per kv head.
  std::int32_t part_heads() const { return group() < kMaxPartHeads ? group() : kMaxPartHeads; }
  std::int32_t parts() const { return (group() + part_heads() - 1) / part_heads(); }
};

/// Not safe for concurrent use. Memory is kept between calls, so that decode steps do not allocate.
class AttentionPlan {
 public:
  /// `blocks`: how many blocks the device should be given at least, where there is enough work. `padded`: the numbers
  /// of tiles, merged rows, slots and scores are rounded up, tiles and rows with empty ones, so that steps of slightly
  /// more keys have the same form. Of the same rows as the time before nothing is made anew: they are the same in all
  /// layers.
  void make(const RowSpan& rows, const AttentionShape& shape, std::int32_t blocks, bool padded = false);

  std::span<const TileRow> rows() const { return rows_; }
  std::span<const AttentionTile> narrow() const { return narrow_; }
  std::span<const AttentionTile> wide() const { return wide_; }
  std::span<const MergeRow> merges() const { return merges_; }
  /// Slots of partial results.
  std::int32_t slots() const { return slots_; }
  /// Rows of kKeyBlock scores that the narrow tiles have, per kv head and part.
  std::int32_t score_rows() const { return score_rows_; }

 private:
  bool is_made_for(const RowSpan& rows, const AttentionShape& shape, std::int32_t blocks, bool padded);
  void pad();
  void cut(std::vector<AttentionTile>& out, std::int32_t begin, std::int32_t end, std::int32_t sequence,
           std::int32_t tile_rows);
  void split(std::vector<AttentionTile>& tiles, std::int64_t heads, std::int32_t blocks);

  std::vector<std::int32_t> made_for_;  // the numbers that the plan follows from
  std::vector<std::int32_t> asked_for_;
  std::vector<TileRow> rows_;
  std::vector<AttentionTile> narrow_, wide_, split_;
  std::vector<MergeRow> merges_;
  std::vector<std::int32_t> order_;
  std::int32_t slots_ = 0;
  std::int32_t score_rows_ = 0;
};

}  // namespace baton::cuda
