// SPDX-License-Identifier: Apache-2.0
// A task is a tile: some rows of one sequence times the query heads that read one kv head, "queries" below. It visits
// key blocks in ascending order. Per block and query it computes the scores, their maximum m_b, p = exp(score - m_b),
// l_b = sum p and o_b = p * values; then (m, l, o) and (m_b, l_b, o_b) merge. Tiling decides only which queries share
// the loads of a block, so a query's bits do not depend on its tile. Where there are fewer tiles than threads can share
// (a decode step with few kv heads), several tasks compute parts of a tile's blocks, and the last to end merges them
// all in the same order.
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/rows.h"
#include "engine/cpu/tile-inl.h"

#ifndef BATON_CPU_ATTENTION_SHARED_
#define BATON_CPU_ATTENTION_SHARED_
namespace baton::cpu {

inline constexpr std::int64_t kSumLanes = 16;  // of a query's sum of weights (tile-inl.h)

struct AttentionTask {
  TensorView out;
  ConstTensorView q;
  const KvSlab& slab;
  const KvShape& shape;
  const RowSpan& rows;
  const AttentionScores& scores;
  std::span<const std::int32_t> order;  // the tile's rows, ascending positions
  std::int64_t kv_head;
  std::int64_t head, head_end;  // query heads
  AttentionSum* received;       // [capacity], of the kv head, or null
  bool shared;                  // other tasks add to `received` too
  float* weights;               // [queries, blocks, 1 + 64]: maximum and weights of each block; null without received
  const RowAttentionTile& tile;
  const RowAttentionPart& part;  // the blocks of this task
  float* partials;               // [queries, blocks] block results; null: this task computes all blocks
  std::int32_t* parts_left;      // of the tile, with partials

  std::int64_t heads() const { return head_end - head; }
  std::int64_t queries() const { return static_cast<std::int64_t>(order.size()) * heads(); }
  std::int32_t row_of(std::int64_t query) const { return order[query / heads()]; }
  /// The number of the block of `key` among those of the tile.
  std::int64_t block_of(std::int64_t key) const { return key / kKeyBlock - tile.block; }
  float* block_weights(std::int64_t query, std::int64_t key) const {
    return weights + (query * tile.blocks() + block_of(key)) * (1 + kKeyBlock);
  }
  std::int64_t head_of(std::int64_t query) const { return head + query % heads(); }
  std::int64_t column_of(std::int64_t query) const { return head_of(query) * shape.head_dim; }
  std::int64_t width() const { return panels_of(shape.head_dim) * kPanel; }
  /// The floats of a block result: o_b [W], l_b [16] and m_b, rounded up to a multiple of 16. W is D rounded up to
  /// whole panels.
  static constexpr std::int64_t result_floats(std::int64_t width) { return width + 2 * kSumLanes; }
};

/// The working memory of a task, carved from a thread's scratch. Rows of q and p are operands of the product kernel.
struct AttentionState {
  AttentionState(float* scratch, std::int32_t head_dim) {
    const auto take = [&scratch](std::int64_t count) { return std::exchange(scratch, scratch + count); };
    const std::int64_t queries = max_queries(head_dim), width = max_width(head_dim);
    q_stride = queries * kTileStride;
    q = take(q_stride * (width / kTileStride));
    p = take(queries * kTileStride);
    o = take(queries * width);
    results = take(queries * AttentionTask::result_floats(width));
    keys = take(kKeyBlock * width);
    values = take(kKeyBlock * width);
    l = take(queries * kSumLanes);
    m = take(queries);
  }
  /// Heads are laid out as if they had one of two widths.
  static constexpr std::int64_t max_width(std::int32_t head_dim) {
    return head_dim > kTileStride ? kMaxHeadDim : kTileStride;
  }
  static constexpr std::int64_t floats(std::int32_t head_dim) {
    const std::int64_t width = max_width(head_dim);
    return max_queries(head_dim) * (width + kTileStride + width + AttentionTask::result_floats(width) + kSumLanes + 1) +
           2 * kKeyBlock * width;
  }

  float* q;               // [D / 256][queries, 256]: what one product reads, then the columns behind it
  std::int64_t q_stride;  // floats of the first part
  float* p;               // [queries, 64]: scores, then exp of them
  float* o;               // [queries, W]
  float* results;         // [queries] results of one block
  float* keys;            // [2][D][32]: a block of keys, widened to f32
  float* values;          // [W / 32][64][32]
  float* l;               // [queries, 16]: sums in virtual lanes
  float* m;               // [queries]

  std::int64_t key_begin[kMaxQueries] = {}, key_end[kMaxQueries] = {};  // the range of keys that each query sees
};
static_assert(AttentionState::floats(kTileStride) <= kThreadFloats &&
              AttentionState::floats(kMaxHeadDim) <= kThreadFloats && kMaxHeadDim == 2 * kTileStride &&
              kMaxHeadDim % kPanel == 0);

/// One key block as panels: two of keys [D][32], W / 32 of values [64][32].
template <class Element>
struct KeyBlock {
  const Element* keys;
  std::ptrdiff_t key_stride;
  const Element* values;
  std::ptrdiff_t value_stride;
};

/// Results of the queries of a group at one block, from the first query on.
struct BlockResults {
  float* first;
  std::int64_t stride;  // floats between queries
  std::int64_t width;

  float* o(std::int64_t i) const { return first + i * stride; }
  float* l(std::int64_t i) const { return o(i) + width; }
  float& m(std::int64_t i) const { return o(i)[width + kSumLanes]; }
};

/// Queries [begin, end) at one block: query begin + i sees keys [low[i], high[i]) of its 64.
struct QueryGroup {
  static constexpr std::int64_t kMaxGroup = 16;
  std::int64_t begin, end;
  std::int64_t low[kMaxGroup], high[kMaxGroup];
  std::int64_t low_of_all = 0, high_of_all = kKeyBlock;  // keys that all queries see
  bool any = false;

  QueryGroup(const AttentionState& state, std::int64_t first, std::int64_t last, std::int64_t key)
      : begin(first), end(last) {
    for (std::int64_t i = 0; i < last - first; ++i) {
      low[i] = std::clamp<std::int64_t>(state.key_begin[first + i] - key, 0, kKeyBlock);
      high[i] = std::clamp<std::int64_t>(state.key_end[first + i] - key, 0, kKeyBlock);
      low_of_all = std::max(low_of_all, low[i]);
      high_of_all = std::min(high_of_all, high[i]);
      any = any || sees(i);
    }
    if (low_of_all >= high_of_all) low_of_all = high_of_all = kKeyBlock;
  }
  bool sees(std::int64_t i) const { return low[i] < high[i]; }
};

}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

static_assert(kSumLanes == kLanes);

/// p[64] = exp(scale * p - maximum) for keys [low, high), zero elsewhere; l[16] = the sums of p per virtual lane.
/// Returns the maximum. kWhole: these are all keys.
template <bool kWhole>
float block_softmax(float* p, float* l, std::int64_t low, std::int64_t high, float scale) {
  const Floats f;
  const auto where_seen = [&](std::int64_t key, FloatVec value, FloatVec other) HWY_ATTR {
    if (kWhole) return value;
    const auto index = hn::Iota(f, static_cast<float>(key));
    const auto sees = hn::And(hn::Ge(index, hn::Set(f, static_cast<float>(low))),
                              hn::Lt(index, hn::Set(f, static_cast<float>(high))));
    return hn::IfThenElse(sees, value, other);
  };
  const auto width = static_cast<std::int64_t>(kWidth);
  const auto least = hn::Set(f, -std::numeric_limits<float>::infinity());
  auto most = least;
  for (std::int64_t key = 0; key < kKeyBlock; key += width) {
    const auto score = hn::Mul(hn::LoadU(f, p + key), hn::Set(f, scale));
    hn::StoreU(score, f, p + key);
    most = hn::Max(most, where_seen(key, score, least));
  }
  most = hn::MaxOfLanes(f, most);
  for (std::int64_t key = 0; key < kKeyBlock; key += width) {
    const auto weight = where_seen(key, hn::Exp(f, hn::Sub(hn::LoadU(f, p + key), most)), hn::Zero(f));
    hn::StoreU(weight, f, p + key);
    float* sum = l + key % 16;
    hn::StoreU(key < 16 ? weight : hn::Add(hn::LoadU(f, sum), weight), f, sum);
  }
  return hn::GetLane(most);
}

/// o[n] = o * old + block * fresh.
HWY_INLINE void merge(float* o, const float* block, float old, float fresh, std::int64_t n) {
  const Floats f;
  for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(kWidth)) {
    const auto kept = hn::Mul(hn::LoadU(f, o + i), hn::Set(f, old));
    hn::StoreU(hn::MulAdd(hn::LoadU(f, block + i), hn::Set(f, fresh), kept), f, o + i);
  }
}

/// o_b = p * values over exactly the keys that each query sees, in ascending order: first the keys that only some of
/// the group see, query by query, then the keys that all see, for the whole group at once, then the rest.
template <class Element>
void weigh_values(const AttentionState& state, const QueryGroup& group, const KeyBlock<Element>& block,
                  const BlockResults& results) {
  const std::int64_t panels = results.width / kPanel;
  const auto add_keys = [&](std::int64_t i, std::int64_t count, std::int64_t low, std::int64_t high) HWY_ATTR {
    if (low >= high) return;
    multiply_tile(results.o(i), results.stride, state.p + (group.begin + i) * kTileStride + low, count,
                  PanelLine{block.values + low * kPanel, block.value_stride, panels}, high - low);
  };
  const std::int64_t count = group.end - group.begin;
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(results.o(i), results.width, 0.0f);
  for (std::int64_t i = 0; i < count; ++i) add_keys(i, 1, group.low[i], std::min(group.high[i], group.low_of_all));
  add_keys(0, count, group.low_of_all, group.high_of_all);
  for (std::int64_t i = 0; i < count; ++i) add_keys(i, 1, std::max(group.low[i], group.high_of_all), group.high[i]);
}

template <class Element>
void compute_results(const AttentionTask& task, const AttentionState& state, const QueryGroup& group,
                     const KeyBlock<Element>& block, std::int64_t key, const BlockResults& results) {
  const std::int64_t count = group.end - group.begin;
  float* p = state.p + group.begin * kTileStride;
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(p + i * kTileStride, kKeyBlock, 0.0f);
  for (std::int64_t d = 0; d < task.shape.head_dim; d += kTileStride) {  // the chains go on from what is in p
    const std::int64_t depth = std::min<std::int64_t>(task.shape.head_dim - d, kTileStride);
    multiply_tile(p, kTileStride, state.q + d / kTileStride * state.q_stride + group.begin * kTileStride, count,
                  PanelLine{block.keys + d * kPanel, block.key_stride, kKeyBlock / kPanel}, depth);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const bool whole = group.low[i] == 0 && group.high[i] == kKeyBlock;
    const auto softmax = whole ? block_softmax<true> : block_softmax<false>;
    results.m(i) = softmax(p + i * kTileStride, results.l(i), group.low[i], group.high[i], task.scores.scale);
  }
  for (std::int64_t i = 0; i < count && task.received != nullptr; ++i) {
    float* weights = task.block_weights(group.begin + i, key);
    *weights = results.m(i);
    std::copy_n(p + i * kTileStride, kKeyBlock, weights + 1);
  }
  weigh_values(state, group, block, results);
}

void merge_results(const AttentionState& state, const QueryGroup& group, const BlockResults& results) {
  constexpr std::int64_t kMaxGroup = QueryGroup::kMaxGroup;
  const std::int64_t count = group.end - group.begin;
  float m_new[kMaxGroup] = {};
  float old[kMaxGroup] = {};
  float fresh[kMaxGroup] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const float m = state.m[group.begin + i];
    m_new[i] = std::max(m, results.m(i));
    old[i] = m - m_new[i];
    fresh[i] = results.m(i) - m_new[i];
  }
  const Floats f;
  for (std::size_t i = 0; i < kMaxGroup; i += kWidth) {
    hn::StoreU(hn::Exp(f, hn::LoadU(f, old + i)), f, old + i);
    hn::StoreU(hn::Exp(f, hn::LoadU(f, fresh + i)), f, fresh + i);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (!group.sees(i)) continue;
    const std::int64_t query = group.begin + i;
    state.m[query] = m_new[i];
    merge(state.l + query * kSumLanes, results.l(i), old[i], fresh[i], kSumLanes);
    merge(state.o + query * results.width, results.o(i), old[i], fresh[i], results.width);
  }
}

/// Calls fn(group, results) for the groups of the task's queries that see keys of the block from `key` on.
template <class Fn>
HWY_INLINE void for_each_group(const AttentionTask& task, const AttentionState& state, std::int64_t key, const Fn& fn) {
  const auto rows = static_cast<std::int64_t>(kTileRows);
  const std::int64_t floats = AttentionTask::result_floats(task.width());
  const std::int64_t stride = task.partials == nullptr ? floats : task.tile.blocks() * floats;
  float* results = task.partials == nullptr ? state.results : task.partials + task.block_of(key) * floats;
  for (std::int64_t query = 0; query < task.queries(); query += rows) {
    const QueryGroup group(state, query, std::min(query + rows, task.queries()), key);
    if (group.any) fn(group, BlockResults{results + query * stride, stride, task.width()});
  }
}

template <class Element>
void attend_block(const AttentionTask& task, const AttentionState& state, const KeyBlock<Element>& block,
                  std::int64_t key) {
  for_each_group(task, state, key, [&](const QueryGroup& group, const BlockResults& results) HWY_ATTR {
    compute_results(task, state, group, block, key, results);
    if (task.partials == nullptr) merge_results(state, group, results);
  });
}

/// sums[64] += weights * scale, rounded to units.
HWY_INLINE void add_units(std::int32_t* sums, const float* weights, float scale) {
  const Floats f;
  const hn::RebindToSigned<Floats> i32;
  for (std::int64_t i = 0; i < kKeyBlock; i += static_cast<std::int64_t>(kWidth)) {
    const auto units = hn::ConvertTo(i32, hn::MulAdd(hn::LoadU(f, weights + i), hn::Set(f, scale), hn::Set(f, 0.5f)));
    hn::StoreU(hn::Add(hn::LoadU(i32, sums + i), units), i32, sums + i);
  }
}

/// Adds the weights that the tile's queries gave to earlier keys. Each weight is rounded to units by itself, so that
/// the sums do not depend on the tiling.
void record_weights(const AttentionTask& task, const AttentionState& state) {
  const std::int64_t begin = task.tile.block * kKeyBlock;
  const std::int64_t end = task.tile.block_end * kKeyBlock;
  float units[kMaxQueries];  // units that a weight of 1 has
  for (std::int64_t query = 0; query < task.queries(); ++query)
    units[query] =
        static_cast<float>(1.0 / (static_cast<double>(fold_lanes(state.l + query * kSumLanes)) * kAttentionUnit));
  for (std::int64_t key = begin; key < end; key += kKeyBlock) {
    std::int32_t sums[kKeyBlock] = {};
    for (std::int64_t query = 0; query < task.queries(); ++query) {
      const std::int64_t self = state.key_end[query] - 1 - key;
      if (state.key_begin[query] >= key + kKeyBlock || self <= 0) continue;  // unseen keys have weight 0
      float* weights = task.block_weights(query, key);
      if (self < kKeyBlock) weights[1 + self] = 0.0f;
      const double block = std::exp(static_cast<double>(*weights - state.m[query]));
      add_units(sums, weights + 1, static_cast<float>(block * units[query]));
    }
    for (std::int64_t i = 0; i < kKeyBlock && !task.shared; ++i)
      task.received[key + i] += static_cast<AttentionSum>(sums[i]);
    for (std::int64_t i = 0; i < kKeyBlock && task.shared; ++i) {
      if (sums[i] == 0) continue;
      std::atomic_ref<AttentionSum>(task.received[key + i])
          .fetch_add(static_cast<AttentionSum>(sums[i]), std::memory_order_relaxed);
    }
  }
}

/// Merges the blocks that all tasks of the tile have computed.
void merge_parts(const AttentionTask& task, const AttentionState& state) {
  for (std::int64_t block = task.tile.block; block < task.tile.block_end; ++block) {
    for_each_group(task, state, block * kKeyBlock, [&](const QueryGroup& group, const BlockResults& results) HWY_ATTR {
      merge_results(state, group, results);
    });
  }
}

template <class Element>
void attend(const AttentionTask& task, float* scratch) {
  AttentionState state(scratch, task.shape.head_dim);
  const std::int64_t depth = task.shape.head_dim;
  const std::int64_t queries = task.queries();
  const std::int64_t width = task.width();
  const std::int64_t panels = width / kPanel;
  const std::span<const float> sinks = task.scores.sinks;
  for (std::int64_t i = 0; i < queries; ++i) {
    const float* query = task.q.f32(task.row_of(i)) + task.column_of(i);
    for (std::int64_t d = 0; d < depth; d += kTileStride)
      std::copy_n(query + d, std::min<std::int64_t>(depth - d, kTileStride),
                  state.q + d / kTileStride * state.q_stride + i * kTileStride);
    state.m[i] = sinks.empty() ? -std::numeric_limits<float>::infinity() : sinks[task.head_of(i)];
    state.key_begin[i] = task.rows.key_begin[task.row_of(i)];
    state.key_end[i] = task.rows.position[task.row_of(i)] + 1;
  }
  std::fill_n(state.o, queries * width, 0.0f);
  std::fill_n(state.l, queries * kSumLanes, 0.0f);
  // A sink is what came before the first block: a weight of 1 without a value.
  for (std::int64_t i = 0; !sinks.empty() && i < queries; ++i) state.l[i * kSumLanes] = 1.0f;

  const Element* keys = key_panels<Element>(task.slab, task.shape, task.kv_head);
  const Element* values = value_panels<Element>(task.slab, task.shape, task.kv_head);
  for (std::int64_t key = task.part.block * kKeyBlock; key < task.part.block_end * kKeyBlock; key += kKeyBlock) {
    const KeyBlock<Element> block{keys + key * depth, depth * kPanel, values + key * kPanel,
                                  task.slab.capacity * kPanel};
    if constexpr (std::is_same_v<Element, std::uint16_t>) {
      if (queries > kFewQueries) {
        widen_panel(state.keys, block.keys, depth * (kKeyBlock / kPanel));
        for (std::int64_t p = 0; p < panels; ++p) {
          widen_panel(state.values + p * kKeyBlock * kPanel, block.values + p * block.value_stride, kKeyBlock);
        }
        attend_block<float>(task, state, {state.keys, depth * kPanel, state.values, kKeyBlock * kPanel}, key);
        continue;
      }
    }
    attend_block(task, state, block, key);
  }

  if (task.partials != nullptr) {
    if (std::atomic_ref<std::int32_t>(*task.parts_left).fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    merge_parts(task, state);
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    const float scale = 1.0f / fold_lanes(state.l + i * kSumLanes);
    float* out = task.out.f32(task.row_of(i)) + task.column_of(i);
    for (std::int64_t d = 0; d < depth; ++d) out[d] = state.o[i * width + d] * scale;
  }
  if (task.received != nullptr) record_weights(task, state);
}

void attend_task(const AttentionTask& task, float* scratch) {
  with_element(task.shape.dtype, [&]<class Element>(Element) HWY_ATTR { attend<Element>(task, scratch); });
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(attend_task);

}  // namespace

void attention(const AttentionResources& resources, TensorView out, ConstTensorView q, const AttentionKv& kv,
               const RowSpan& rows, const AttentionScores& scores) {
  ThreadPool& pool = resources.pool;
  Scratch& scratch = resources.scratch;
  RowAttentionPlan& plan = resources.plan;
  const std::span<const KvSlab> slabs = kv.slabs;
  const KvShape& shape = kv.shape;
  const std::span<AttentionSum* const> received = kv.received;
  if (rows.size() == 0) return;
  const std::int64_t query_heads = q.cols / shape.head_dim;
  const std::int64_t group = query_heads / shape.kv_heads;
  const std::int64_t heads_per_tile = std::min(group, max_queries(shape.head_dim));
  const std::int64_t head_parts = (group + heads_per_tile - 1) / heads_per_tile;
  const std::int64_t result_floats = AttentionTask::result_floats(panels_of(shape.head_dim) * kPanel);
  const bool records = std::any_of(received.begin(), received.end(), [](const auto* sums) { return sums != nullptr; });
  const std::int64_t weight_floats = records ? 1 + kKeyBlock : 0;
  std::int64_t keys = 0;  // of all rows
  for (std::int64_t i = 0; i < rows.size(); ++i) keys += rows.position[i] + 1 - rows.key_begin[i];
  const auto key_bytes = 2 * shape.kv_heads * shape.head_dim * static_cast<std::int64_t>(size_of(shape.dtype));
  const std::int64_t work = keys * (q.cols / 8 + query_heads + key_bytes / 4);
  plan_attention(plan, rows,
                 {.groups = shape.kv_heads * head_parts,
                  .heads = heads_per_tile,
                  .floats = result_floats + weight_floats,
                  .threads = work < ThreadPool::kWorthWaking ? 1 : pool.size(),
                  .queries = max_queries(shape.head_dim)});
  if (records) {
    std::int64_t most = 0;  // rows and blocks
    for (const RowAttentionTile& tile : plan.tiles) most = std::max(most, tile.rows() * tile.blocks());
    const auto floats = static_cast<std::size_t>(most * heads_per_tile * weight_floats);
    plan.weights.resize(static_cast<std::size_t>(pool.size()));
    for (auto& weights : plan.weights) weights.resize(std::max(weights.size(), floats));
  }

  pool.run(static_cast<std::int64_t>(plan.parts.size()), work, [&](std::int64_t index, int thread) {
    const RowAttentionPart& part = plan.parts[static_cast<std::size_t>(index)];
    const RowAttentionTile& tile = plan.tiles[part.tile];
    const std::int64_t kv_head = part.group / head_parts;
    const std::int64_t head = kv_head * group + part.group % head_parts * heads_per_tile;
    const auto order = std::span(plan.order).subspan(tile.begin, tile.rows());
    const std::int32_t sequence = rows.sequence[order[0]];
    AttentionSum* sums = received.empty() ? nullptr : received[sequence];
    if (sums != nullptr) sums += kv_head * slabs[sequence].capacity;
    float* partials = part.partials < 0 ? nullptr : plan.partials.data() + part.partials;
    float* weights = nullptr;
    if (sums != nullptr) {
      weights = partials == nullptr ? plan.weights[static_cast<std::size_t>(thread)].data()
                                    : partials + tile.rows() * heads_per_tile * tile.blocks() * result_floats;
    }
    const AttentionTask task{.out = out,
                             .q = q,
                             .slab = slabs[sequence],
                             .shape = shape,
                             .rows = rows,
                             .scores = scores,
                             .order = order,
                             .kv_head = kv_head,
                             .head = head,
                             .head_end = std::min(head + heads_per_tile, (kv_head + 1) * group),
                             .received = sums,
                             .shared = head_parts > 1 || !tile.alone,
                             .weights = weights,
                             .tile = tile,
                             .part = part,
                             .partials = partials,
                             .parts_left = &plan.parts_left[part.parts_left]};
    HWY_DYNAMIC_DISPATCH(attend_task)(task, scratch.of_thread(thread));
  });
}

namespace {

constexpr std::int64_t kMaxPartials = std::int64_t{8} << 20;  // floats; tiles are not cut beyond

/// Rows by (sequence, position), cut where the sequence changes and every `rows_per_tile` rows.
void make_tiles(RowAttentionPlan& plan, const RowSpan& rows, std::int64_t rows_per_tile) {
  std::vector<std::int32_t>& order = plan.order;
  std::vector<RowAttentionTile>& tiles = plan.tiles;
  order.resize(static_cast<std::size_t>(rows.size()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return std::tuple(rows.sequence[a], rows.position[a], a) < std::tuple(rows.sequence[b], rows.position[b], b);
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
  tiles.clear();
  std::int32_t last = -1;  // sequence of the tile before
  for (std::int64_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    const std::int32_t sequence = rows.sequence[order[begin]];
    std::int32_t first_key = rows.key_begin[order[begin]];
    for (; end < rows.size() && end - begin < rows_per_tile && rows.sequence[order[end]] == sequence; ++end) {
      first_key = std::min(first_key, rows.key_begin[order[end]]);
    }
    const bool alone = sequence != last;
    if (!alone) tiles.back().alone = false;
    tiles.push_back({begin, end, first_key / kKeyBlock, rows.position[order[end - 1]] / kKeyBlock + 1, alone});
    last = sequence;
  }
}

/// Where tiles and groups are too few to keep all threads at work to the end, they are laid out in a line, and the line
/// is cut into as many equal pieces as there are threads.
void make_parts(RowAttentionPlan& plan, const RowAttentionSizes& sizes) {
  const std::vector<RowAttentionTile>& tiles = plan.tiles;
  std::vector<RowAttentionPart>& parts = plan.parts;
  // A block of keys is read once for all queries of a tile.
  const auto block_work = [&](const RowAttentionTile& tile) { return 2 + tile.rows() * sizes.heads; };
  std::int64_t total = 0, floats = 0;
  for (const RowAttentionTile& tile : tiles) total += tile.blocks() * block_work(tile) * sizes.groups;
  const auto tasks = static_cast<std::int64_t>(tiles.size()) * sizes.groups;
  const std::int64_t piece = tasks < 4 * sizes.threads ? (total + sizes.threads - 1) / sizes.threads : total;
  parts.clear();
  plan.parts_left.clear();
  std::int64_t room = piece;                      // until the next cut
  for (std::size_t i = tiles.size(); i-- > 0;) {  // late positions take longest
    const RowAttentionTile& tile = tiles[i];
    const std::int64_t work = block_work(tile);
    const std::int64_t tile_floats = sizes.heads * tile.rows() * tile.blocks() * sizes.floats;
    for (std::int64_t group = 0; group < sizes.groups; ++group) {
      const std::size_t first = parts.size();
      const bool cuts = floats + tile_floats <= kMaxPartials;
      for (std::int64_t block = tile.block; block < tile.block_end;) {
        const std::int64_t left = tile.block_end - block;
        std::int64_t count = cuts ? std::min(left, std::max<std::int64_t>((room + work / 2) / work, 1)) : left;
        if (count == left - 1) ++count;  // a block by itself is not worth its cut
        parts.push_back({i, group, block, block + count, count * work, plan.parts_left.size(), -1});
        block += count;
        room -= count * work;
        while (room < work) room += piece;
      }
      plan.parts_left.push_back(static_cast<std::int32_t>(parts.size() - first));
      if (parts.size() - first == 1) continue;
      for (std::size_t part = first; part < parts.size(); ++part) parts[part].partials = floats;
      floats += tile_floats;
    }
  }
  std::sort(parts.begin(), parts.end(), [](const RowAttentionPart& a, const RowAttentionPart& b) {
    return std::tuple(-a.work, a.parts_left, a.block) < std::tuple(-b.work, b.parts_left, b.block);
  });
  if (static_cast<std::int64_t>(plan.partials.size()) < floats) plan.partials.resize(static_cast<std::size_t>(floats));
}

}  // namespace

void plan_attention(RowAttentionPlan& plan, const RowSpan& rows, const RowAttentionSizes& sizes) {
  const std::int64_t fair = std::max(rows.size() * sizes.groups / (4 * sizes.threads), kFewQueries / sizes.heads);
  make_tiles(plan, rows, std::clamp<std::int64_t>(fair, 1, sizes.queries / sizes.heads));
  make_parts(plan, sizes);
}

}  // namespace baton::cpu

#endif  // HWY_ONCE
