// SPDX-License-Identifier: Apache-2.0
// AttentionPlan: divides the rows of one attention call into blocks of work. Rows of one sequence that see overlapping
// keys share a tile; tiles with many keys are split. It is host code, tested without a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cuda/host/types.h"

namespace baton::cuda {

/// A row of the call and the keys that it sees.
struct TileRow {
  std::int32_t row;        // index in the call
  std::int32_t key_begin;  // sees keys [key_begin, key_end)
  std::int32_t key_end;
};

/// One block's work for one kv head (and one part of its query heads): rows of one sequence over a range of keys.
struct AttentionTile {
  std::int32_t sequence;
  std::int32_t row_begin;  // index in the sorted rows
  std::int32_t rows;       // 0: nothing to do
  std::int32_t key_begin;  // keys [key_begin, key_end); inner limits of split tiles are multiples of kKeyBlock
  std::int32_t key_end;
  std::int32_t free_begin;  // keys [free_begin, free_end) are seen by every row: no masking there
  std::int32_t free_end;
  std::int32_t partial;  // first slot of the rows' partial results; -1: the tile sees all keys and writes its output
  std::int32_t scores;   // narrow tiles: where their scores begin, in rows of kKeyBlock scores per kv head part
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
/// The maximum number of query heads of a kv head in one block; the others get further blocks.
inline constexpr std::int32_t kMaxPartHeads = 16;

struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t group() const { return heads / kv_heads; }
  /// The number of query heads per block, and the number of blocks per kv head.
  std::int32_t part_heads() const { return group() < kMaxPartHeads ? group() : kMaxPartHeads; }
  std::int32_t parts() const { return (group() + part_heads() - 1) / part_heads(); }
};

/// Threads: one caller at a time. Memory is kept between calls, so that decode steps do not allocate.
class AttentionPlan {
 public:
  /// Makes the plan. `blocks`: the number of blocks that the plan should have at least, where there is enough work.
  /// `padded`: the numbers of tiles, merged rows, slots and scores are rounded up (with empty tiles and rows), so that
  /// a step with slightly more keys has the same form. Returns at once for the rows of the last call, because all
  /// layers have the same rows.
  void make(const RowSpan& rows, const AttentionShape& shape, std::int32_t blocks, bool padded = false);

  std::span<const TileRow> rows() const { return rows_; }
  std::span<const AttentionTile> narrow() const { return narrow_; }
  std::span<const AttentionTile> wide() const { return wide_; }
  std::span<const MergeRow> merges() const { return merges_; }
  /// Returns the number of slots of partial results.
  std::int32_t slots() const { return slots_; }
  /// Returns the number of rows of kKeyBlock scores that the narrow tiles store, per kv head and part.
  std::int32_t score_rows() const { return score_rows_; }

 private:
  bool is_made_for(const RowSpan& rows, const AttentionShape& shape, std::int32_t blocks, bool padded);
  void pad();
  void cut(std::vector<AttentionTile>& out, std::int32_t begin, std::int32_t end, std::int32_t sequence,
           std::int32_t tile_rows);
  void split(std::vector<AttentionTile>& tiles, std::int64_t heads, std::int32_t blocks);

  std::vector<std::int32_t> made_for_;  // the input of the current plan, as numbers
  std::vector<std::int32_t> asked_for_;
  std::vector<TileRow> rows_;
  std::vector<AttentionTile> narrow_, wide_, split_;
  std::vector<MergeRow> merges_;
  std::vector<std::int32_t> order_;
  std::int32_t slots_ = 0;
  std::int32_t score_rows_ = 0;
};

}  // namespace baton::cuda
