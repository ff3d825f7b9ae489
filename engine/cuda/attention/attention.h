// SPDX-License-Identifier: Apache-2.0
// AttentionPlan: divides the rows of one attention call into blocks of work. Rows of one sequence that see overlapping
// keys share a tile; tiles with many keys are split. It is host code, tested without a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/kernels/kernels.h"

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

// The launches of attention. There are two families: tiles on the tensor cores (attention_tiles.cuh; bf16 caches of the
// usual head widths), and one block per row and head (attention.cu; all other caches, in fp32 throughout).

/// The arguments of one call. All pointers are device memory; strides are in elements.
struct AttentionCall {
  const KvSlab* slabs = nullptr;  // [number of sequences]
  const float* q = nullptr;       // [T, H * D]
  std::int64_t q_stride = 0;
  void* out = nullptr;  // [T, H * D], f32 or bf16
  std::int64_t out_stride = 0;
  std::int32_t out_bf16 = 0;  // not 0: bf16
  std::int32_t heads = 0, kv_heads = 0, part_heads = 0, parts = 0;
  float scale = 0;                          // no padding up to here: calls are compared as bytes (launch_log.h)
  const float* sinks = nullptr;             // [H], or null: there are none
  AttentionSum* const* received = nullptr;  // [number of sequences], each null or [K, capacity]; or null
  // Only for tiles:
  const TileRow* rows = nullptr;  // sorted
  float* partial = nullptr;       // [slots, H, D]
  float* partial_max = nullptr;   // [slots, H], of scores times scale times log2(e)
  float* partial_sum = nullptr;   // [slots, H]
  float* scores = nullptr;        // of narrow tiles, see launch_attention_received; null: not recorded
  float* logsum = nullptr;        // [T, H] log2 of the sum of exponentials, or null: not wanted
};

/// True when tiles support the cache's type and head width.
bool has_tiles(const KvShape& shape);

void launch_attention_tiles(Stream stream, const AttentionCall& call, std::int32_t head_dim,
                            const AttentionTile* narrow, std::size_t narrow_count, const AttentionTile* wide,
                            std::size_t wide_count);
/// Merges the slots of split rows into their outputs. Their sinks take part here; in tiles that see all keys of their
/// rows, there.
void launch_attention_merge(Stream stream, const AttentionCall& call, std::int32_t head_dim, const MergeRow* merges,
                            std::size_t count);
/// Adds the weights that rows give to earlier keys to `received`, from logsum; call it after the outputs are computed.
/// Wide tiles compute their scores again. Narrow tiles have stored them, for each kv head part and tile
/// [key block][packed row][kKeyBlock], times scale times log2(e), and minus infinity where the row does not see the
/// key.
void launch_attention_received(Stream stream, const AttentionCall& call, std::int32_t head_dim,
                               const AttentionTile* narrow, std::size_t narrow_count, const AttentionTile* wide,
                               std::size_t wide_count);

/// Supports any cache and any head width, with one block per row and head. Also adds to `received`.
void launch_attention_rows(Stream stream, const AttentionCall& call, const KvShape& shape, const DeviceRows& rows);

// The launches of tiles of one head width. Each width has a .cu file, so that they compile in parallel.

template <int D>
struct TileLaunches {
  static void attend(Stream stream, const AttentionCall& call, const AttentionTile* narrow, std::size_t narrow_count,
                     const AttentionTile* wide, std::size_t wide_count);
  /// Adds to `received` for wide tiles.
  static void receive(Stream stream, const AttentionCall& call, const AttentionTile* wide, std::size_t wide_count);
};

}  // namespace baton::cuda
