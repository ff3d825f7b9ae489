// SPDX-License-Identifier: Apache-2.0
// Caches, rows and sums for the tests of what reuse asks of a backend.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/engine/ops/fixtures.h"

namespace baton::test::reusing {

using Index = std::vector<std::int32_t>;

/// Elements in the type of a cache.
struct Elements {
  Elements(DType type, std::int64_t rows_in, std::int64_t cols_in)
      : dtype(type), rows(rows_in), cols(cols_in), bytes(static_cast<std::size_t>(rows * cols) * size_of(type)) {}
  Elements(const Values& values, DType type) : Elements(type, values.rows, values.cols) {
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const float value = values.data[static_cast<std::size_t>(i)];
      if (dtype == DType::f32) view().f32()[i] = value;
      if (dtype == DType::bf16) view().bf16()[i] = f32_to_bf16(value);
    }
  }
  TensorView view() { return {bytes.data(), dtype, rows, cols, cols}; }

  DType dtype;
  std::int64_t rows, cols;
  std::vector<std::byte> bytes;
};

struct Slab {
  Slab(Backend& backend, const KvShape& shape, std::int32_t capacity)
      : half(backend.kv_slab_bytes(shape, capacity)),
        raw_bytes(static_cast<std::size_t>(capacity * shape.kv_heads * shape.head_dim) * size_of(shape.dtype)),
        memory(backend.allocate(2 * half + raw_bytes)),
        slab{.keys = memory.data(),
             .values = memory.data() + half,
             .capacity = capacity,
             .raw_keys = memory.data() + 2 * half} {}
  std::span<const std::byte> bytes() const { return {memory.data(), 2 * half + raw_bytes}; }
  std::span<const std::byte> raw() const { return {slab.raw_keys, raw_bytes}; }

  std::size_t half, raw_bytes;
  Buffer memory;
  KvSlab slab;
};

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) { return std::ranges::equal(a, b); }

inline Index zeros(std::size_t n) { return Index(n, 0); }

/// Different positions of [0, end) in random order.
inline Index some_positions(Random& random, std::int32_t end, std::size_t count) {
  Index all(static_cast<std::size_t>(end));
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t i = all.size() - 1; i > 0; --i)
    std::swap(all[i], all[random.integer(0, static_cast<std::int64_t>(i) + 1)]);
  all.resize(count);
  return all;
}

/// Sequences with random keys and values; what lies beyond them is poison.
struct Caches {
  Caches(Backend& backend, const KvShape& shape_in, const Index& lengths, std::uint32_t seed) : shape(shape_in) {
    Random random(seed);
    for (const std::int32_t length : lengths) {
      const std::int32_t capacity = (length / kKeyBlock + 1) * kKeyBlock;
      Slab& slab = memory.emplace_back(backend, shape, capacity);
      std::memset(slab.memory.data(), 0xff, slab.memory.bytes());
      slabs.push_back(slab.slab);
      keys.push_back(random.values(length, shape.kv_heads * shape.head_dim));
      Index sequence(length, static_cast<std::int32_t>(slabs.size()) - 1), position(length);
      std::iota(position.begin(), position.end(), 0);
      const Values none(length, 0);
      const Index begin = zeros(static_cast<std::size_t>(length));
      backend.kv().store_kv(slabs, shape, {sequence, position, begin}, keys.back().view(), keys.back().view(),
                            {none.view(), none.view()});
    }
  }
  KvShape shape;
  std::vector<Slab> memory;
  std::vector<KvSlab> slabs;
  std::vector<Values> keys;
};

struct Rows {
  Index sequence, position, begin;
  RowSpan part(std::int64_t from, std::int64_t to) const {
    const auto cut = [&](const Index& all) { return std::span(all).subspan(from, to - from); };
    return {cut(sequence), cut(position), cut(begin)};
  }
  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
};

inline Rows scattered(Random& random, const Index& lengths, std::int64_t count) {
  Rows rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t s = random.integer(0, static_cast<std::int64_t>(lengths.size()));
    rows.sequence.push_back(s);
    rows.position.push_back(random.integer(0, lengths[s]));
    rows.begin.push_back(random.integer(0, 2) == 0 ? 0 : random.integer(0, rows.position.back() + 1));
  }
  return rows;
}

/// Sums of every second sequence; the others record nothing.
struct Sums {
  explicit Sums(const Caches& caches) {
    for (const KvSlab& slab : caches.slabs) sums.emplace_back(caches.shape.kv_heads * slab.capacity, AttentionSum{0});
    for (std::size_t i = 0; i < sums.size(); ++i) pointers.push_back(i % 2 == 0 ? sums[i].data() : nullptr);
  }
  std::vector<std::vector<AttentionSum>> sums;
  std::vector<AttentionSum*> pointers;
};

inline Values attend(Backend& backend, const Caches& caches, const Values& q, const Rows& rows, std::int64_t from,
                     std::int64_t to, std::span<AttentionSum* const> received, std::span<const float> sinks = {}) {
  Values out(to - from, q.cols);
  backend.kv().attention(out.view(), q.view().row_range(from, to), caches.slabs, caches.shape, rows.part(from, to),
                         {0.25f, sinks}, received);
  return out;
}

inline constexpr std::pair<int, KvShape> kGroups[] = {
    {3, {3, 16, DType::f32}},   {4, {2, 64, DType::bf16}}, {6, {2, 48, DType::f32}}, {4, {1, 32, DType::bf16}},
    {5, {1, 80, DType::f32}},   {12, {2, 8, DType::bf16}}, {7, {1, 64, DType::f32}}, {8, {1, 16, DType::bf16}},
    {100, {1, 8, DType::bf16}}, {2, {1, 256, DType::f32}},
};
inline const Index kLengths = {200, 70, 65, 64, 130, 3};

}  // namespace baton::test::reusing
