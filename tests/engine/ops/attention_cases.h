// SPDX-License-Identifier: Apache-2.0
// Sequences, rows and exact results for the tests of attention.
#pragma once

#include <algorithm>

#include "tests/engine/ops/fixtures.h"

namespace baton::test::attending {

struct Shape {
  std::int32_t heads, kv_heads, head_dim;
  DType dtype;
};

/// A few sequences whose caches are filled up to a length; everything beyond, and the gaps, is poison.
class Caches {
 public:
  Caches(Backend& backend, const Shape& shape, std::span<const std::int32_t> lengths, std::uint32_t seed)
      : shape_{shape.kv_heads, shape.head_dim, shape.dtype} {
    Random random(seed);
    for (const std::int32_t length : lengths) {
      const std::int32_t capacity = (length + kKeyBlock - 1) / kKeyBlock * kKeyBlock + kKeyBlock;
      const std::size_t bytes = backend.kv_slab_bytes(shape_, capacity);
      for (int half = 0; half < 2; ++half) {
        buffers_.push_back(backend.allocate(bytes));
        std::memset(buffers_.back().data(), 0xff, bytes);  // NaN in both types
      }
      slabs_.push_back({buffers_[buffers_.size() - 2].data(), buffers_.back().data(), capacity});
      keys_.push_back(random.values(length, shape.kv_heads * shape.head_dim));
      values_.push_back(random.values(length, shape.kv_heads * shape.head_dim));
      largest_value_ = std::max(largest_value_, largest(values_.back().data));
      std::vector<std::int32_t> positions(length);
      for (std::int32_t i = 0; i < length; ++i) positions[i] = i;
      const std::vector<std::int32_t> sequence(length, static_cast<std::int32_t>(slabs_.size()) - 1);
      const std::vector<std::int32_t> begin(length, 0);
      const Values none(length, 0);
      backend.kv().store_kv(slabs_, shape_, {sequence, positions, begin}, keys_.back().view(), values_.back().view(),
                            {none.view(), none.view()});
    }
  }

  std::span<const KvSlab> slabs() const { return slabs_; }
  const KvShape& shape() const { return shape_; }
  float key(std::int32_t sequence, std::int64_t position, std::int64_t column) const {
    return round_to(keys_[sequence].at(position, column), shape_.dtype);
  }
  float value(std::int32_t sequence, std::int64_t position, std::int64_t column) const {
    return round_to(values_[sequence].at(position, column), shape_.dtype);
  }
  float largest_value() const { return largest_value_; }

 private:
  KvShape shape_;
  std::vector<Buffer> buffers_;
  std::vector<KvSlab> slabs_;
  std::vector<Values> keys_, values_;
  float largest_value_ = 0;
};

struct Rows {
  std::vector<std::int32_t> sequence, position, key_begin;
  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
  RowSpan span(std::int64_t begin, std::int64_t end) const {
    const auto part = [&](const std::vector<std::int32_t>& all) { return std::span(all).subspan(begin, end - begin); };
    return {part(sequence), part(position), part(key_begin)};
  }
  RowSpan span() const { return span(0, size()); }
};

/// `count` different rows of the sequences in random order, half of them with a window of their own.
inline Rows scattered_rows(Random& random, std::span<const std::int32_t> lengths, std::int64_t count) {
  std::vector<std::pair<std::int32_t, std::int32_t>> all;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    for (std::int32_t p = 0; p < lengths[s]; ++p) all.emplace_back(static_cast<std::int32_t>(s), p);
  }
  Rows rows;
  for (std::int64_t i = 0; i < count && !all.empty(); ++i) {
    const auto pick = all.begin() + random.integer(0, static_cast<std::int64_t>(all.size()));
    rows.sequence.push_back(pick->first);
    rows.position.push_back(pick->second);
    rows.key_begin.push_back(random.integer(0, 2) == 0 ? 0 : random.integer(0, pick->second + 1));
    all.erase(pick);
  }
  return rows;
}

inline Values attend(Backend& backend, const Caches& caches, const Values& q, const RowSpan& rows,
                     const AttentionScores& scores) {
  Values out(q.rows, q.cols, std::nanf(""));
  backend.kv().attention(out.view(), q.view(), caches.slabs(), caches.shape(), rows, scores);
  return out;
}

/// Sinks that weigh as much as some keys, as nothing, and as nearly all, [heads].
inline std::vector<float> sinks_of(std::int64_t heads) {
  std::vector<float> sinks;
  for (std::int64_t head = 0; head < heads; ++head)
    sinks.push_back(head % 4 == 3 ? -200.0f : 3.0f * static_cast<float>(head % 4) - 1.0f);
  return sinks;
}

/// Attention of one query in double, over exactly the row's keys.
class Exact {
 public:
  Exact(const Caches& caches, const Values& q, const Rows& rows, const AttentionScores& scores)
      : out_(static_cast<std::size_t>(q.rows * q.cols)), cols_(q.cols) {
    const std::int64_t width = caches.shape().head_dim;
    const std::int64_t group = q.cols / width / caches.shape().kv_heads;
    for (std::int64_t t = 0; t < q.rows; ++t) {
      for (std::int64_t head = 0; head < q.cols / width; ++head) {
        const std::int64_t kv_column = head / group * width;
        double sum = scores.sinks.empty() ? 0.0 : std::exp(static_cast<double>(scores.sinks[head]));
        std::vector<double> value(width);
        for (std::int64_t key = rows.key_begin[t]; key <= rows.position[t]; ++key) {
          double score = 0;
          for (std::int64_t d = 0; d < width; ++d) {
            score += static_cast<double>(q.at(t, head * width + d)) *
                     static_cast<double>(caches.key(rows.sequence[t], key, kv_column + d));
          }
          const double weight = std::exp(score * static_cast<double>(scores.scale));
          sum += weight;
          for (std::int64_t d = 0; d < width; ++d) {
            value[d] += weight * static_cast<double>(caches.value(rows.sequence[t], key, kv_column + d));
          }
        }
        for (std::int64_t d = 0; d < width; ++d) out_[t * cols_ + head * width + d] = value[d] / sum;
      }
    }
  }
  double operator()(std::int64_t row, std::int64_t col) const { return out_[row * cols_ + col]; }

 private:
  std::vector<double> out_;
  std::int64_t cols_;
};

/// `rounding`: relative, of queries and weights, where products take them in bf16. A score's error moves its weight by
/// as much; the scores' norms are about |q| sqrt(D). The sums over keys are averages of values with weights that add up
/// to 1.
inline float attention_tolerance(const Caches& caches, const Values& q, std::int64_t row, float scale,
                                 float rounding = 0) {
  const auto width = caches.shape().head_dim;
  const float norm_q = norm_of(q.row(row)), norm_k = std::sqrt(static_cast<float>(width));
  const float score = (sum_tolerance(width, norm_q, norm_k) + 2 * rounding * norm_q * norm_k) * scale;
  return (2 * score + 16 * kEpsilon + rounding) * caches.largest_value();
}

inline constexpr Shape kShapes[] = {
    {1, 1, 8, DType::bf16},   {2, 2, 16, DType::f32},  {4, 2, 48, DType::bf16},  {6, 2, 80, DType::f32},
    {8, 1, 64, DType::bf16},  {4, 4, 32, DType::bf16}, {5, 1, 64, DType::f32},   {16, 2, 128, DType::bf16},
    {3, 1, 256, DType::bf16}, {2, 1, 256, DType::f32}, {100, 1, 8, DType::bf16}, {3, 1, 512, DType::bf16},
    {2, 1, 264, DType::f32},
};

}  // namespace baton::test::attending
