// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/attention.h"

#include <algorithm>
#include <tuple>

namespace baton::cpu {
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
  make_tiles(plan, rows, std::clamp<std::int64_t>(fair, 1, kMaxQueries / sizes.heads));
  make_parts(plan, sizes);
}

}  // namespace baton::cpu
