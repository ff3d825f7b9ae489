#include <algorithm>

#include "fixtures.h"
#include "targets.h"

namespace baton::test {
namespace {

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
      backend.store_kv(slabs_, shape_, {sequence, positions, begin}, keys_.back().view(), values_.back().view(),
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
Rows scattered_rows(Random& random, std::span<const std::int32_t> lengths, std::int64_t count) {
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

Values attend(Backend& backend, const Caches& caches, const Values& q, const RowSpan& rows, float scale) {
  Values out(q.rows, q.cols, std::nanf(""));
  backend.attention(out.view(), q.view(), caches.slabs(), caches.shape(), rows, scale);
  return out;
}

/// Attention of one query in double, over exactly the row's keys.
class Exact {
 public:
  Exact(const Caches& caches, const Values& q, const Rows& rows, float scale)
      : out_(static_cast<std::size_t>(q.rows * q.cols)), cols_(q.cols) {
    const std::int64_t width = caches.shape().head_dim;
    const std::int64_t group = q.cols / width / caches.shape().kv_heads;
    for (std::int64_t t = 0; t < q.rows; ++t) {
      for (std::int64_t head = 0; head < q.cols / width; ++head) {
        const std::int64_t kv_column = head / group * width;
        double sum = 0;
        std::vector<double> value(width);
        for (std::int64_t key = rows.key_begin[t]; key <= rows.position[t]; ++key) {
          double score = 0;
          for (std::int64_t d = 0; d < width; ++d) {
            score += static_cast<double>(q.at(t, head * width + d)) *
                     static_cast<double>(caches.key(rows.sequence[t], key, kv_column + d));
          }
          const double weight = std::exp(score * static_cast<double>(scale));
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

/// A score's error moves its weight by as much; the scores' norms are about |q| sqrt(D). The sums over keys are
/// averages of values with weights that add up to 1.
float attention_tolerance(const Caches& caches, const Values& q, std::int64_t row, float scale) {
  const auto width = caches.shape().head_dim;
  const float score = sum_tolerance(width, norm_of(q.row(row)), std::sqrt(static_cast<float>(width))) * scale;
  return (2 * score + 16 * kEpsilon) * caches.largest_value();
}

/// Random rows of the sequences, on every instruction set.
void compare_with_exact(Backend& backend, const Shape& shape, std::span<const std::int32_t> lengths, std::int64_t count,
                        std::uint32_t seed) {
  Random random(seed);
  const Caches caches(backend, shape, lengths, seed + 1);
  const Rows rows = scattered_rows(random, lengths, count);
  const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  const Exact exact(caches, q, rows, scale);
  std::vector<float> tolerance;
  for (std::int64_t row = 0; row < q.rows; ++row) tolerance.push_back(attention_tolerance(caches, q, row, scale));
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    INFO(backend.info().name << " " << hwy::TargetName(target) << " H " << shape.heads << " K " << shape.kv_heads
                             << " D " << shape.head_dim << " " << name_of(shape.dtype) << " T " << count);
    require_close(attend(backend, caches, q, rows.span(), scale), exact,
                  [&](auto row, auto) { return tolerance[row]; });
  }
}

TEST_CASE("attention by hand") {
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(1);
  for (Backend* backend : {reference.get(), cpu.get()}) {
    const KvShape shape{1, 8, DType::f32};
    const std::size_t bytes = backend->kv_slab_bytes(shape, 64);
    const Buffer keys = backend->allocate(bytes);
    const Buffer values = backend->allocate(bytes);
    const KvSlab slab{keys.data(), values.data(), 64};
    // Keys 0 and 1 differ by log(3) in their score, so they weigh 1 : 3. Key 2 would outweigh both.
    Values k(3, 8), v(3, 8), none(3, 0);
    k.at(1, 0) = std::log(3.0f);
    k.at(2, 0) = 100;
    v.at(0, 5) = 4;
    v.at(1, 5) = 8;
    v.at(2, 5) = 1000;
    const std::vector<std::int32_t> zeros = {0, 0, 0}, positions = {0, 1, 2};
    backend->store_kv({&slab, 1}, shape, {zeros, positions, zeros}, k.view(), v.view(), {none.view(), none.view()});
    Values q(2, 8), out(2, 8);
    q.at(0, 0) = q.at(1, 0) = 1;
    const std::vector<std::int32_t> both = {0, 0}, position = {1, 1}, begin = {0, 1};
    backend->attention(out.view(), q.view(), {&slab, 1}, shape, {both, position, begin}, 1.0f);
    REQUIRE(out.at(0, 5) == Approx(7));  // (1 * 4 + 3 * 8) / 4
    REQUIRE(out.at(1, 5) == Approx(8));  // only key 1
    REQUIRE(out.at(0, 4) == 0);
  }
}

constexpr Shape kShapes[] = {
    {1, 1, 8, DType::bf16},   {2, 2, 16, DType::f32},  {4, 2, 48, DType::bf16},  {6, 2, 80, DType::f32},
    {8, 1, 64, DType::bf16},  {4, 4, 32, DType::bf16}, {5, 1, 64, DType::f32},   {16, 2, 128, DType::bf16},
    {3, 1, 256, DType::bf16}, {2, 1, 256, DType::f32}, {100, 1, 8, DType::bf16},
};

TEST_CASE("attention of scattered rows agrees with double") {
  const std::vector<std::int32_t> lengths = {1, 63, 64, 65, 200};
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(2);
  std::uint32_t seed = 10;
  for (const Shape& shape : kShapes) {
    compare_with_exact(*reference, shape, lengths, 9, ++seed);
    for (const std::int64_t count : {1, 3, 20, 100}) compare_with_exact(*cpu, shape, lengths, count, ++seed);
  }
}

TEST_CASE("attention: a row has the same bits alone, in company, and for any number of threads") {
  const std::vector<std::int32_t> lengths = {40, 64, 130, 300};
  Random random(50);
  for (const Shape& shape : kShapes) {
    INFO("H " << shape.heads << " K " << shape.kv_heads << " D " << shape.head_dim << " " << name_of(shape.dtype));
    const auto one = make_cpu_backend(1);
    const Caches caches(*one, shape, lengths, 51);
    const Rows rows = scattered_rows(random, lengths, 120);
    const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
    const Values whole = attend(*one, caches, q, rows.span(), 0.3f);
    for (const int threads : {1, 2, 3, 5}) {
      const auto backend = make_cpu_backend(threads);
      for (std::int64_t begin = 0; begin < rows.size();) {
        const std::int64_t end = std::min<std::int64_t>(rows.size(), begin + random.integer(1, 40));
        Values out(end - begin, q.cols);
        backend->attention(out.view(), q.view().row_range(begin, end), caches.slabs(), caches.shape(),
                           rows.span(begin, end), 0.3f);
        INFO(threads << " threads, rows [" << begin << ", " << end << ")");
        require_same_bits(out.data, std::span(whole.data).subspan(begin * q.cols, (end - begin) * q.cols));
        begin = end;
      }
    }
  }
}

TEST_CASE("attention has the same bits on every instruction set with fused multiply-add") {
  const std::vector<std::int32_t> lengths = {70, 200};
  const auto cpu = make_cpu_backend(2);
  for (const Shape& shape : kShapes) {
    Random random(60);
    const Caches caches(*cpu, shape, lengths, 61);
    const Rows rows = scattered_rows(random, lengths, 60);
    const Values q = random.values(rows.size(), shape.heads * shape.head_dim);
    const Values best = attend(*cpu, caches, q, rows.span(), 0.2f);
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (!is_fused(target) || !machine_is_fused()) continue;
      const OnlyTarget only(target);
      INFO(hwy::TargetName(target));
      require_same_bits(attend(*cpu, caches, q, rows.span(), 0.2f).data, best.data);
    }
  }
}

TEST_CASE("attention survives scores far beyond the range of exp") {
  const auto cpu = make_cpu_backend(1);
  const Shape shape{1, 1, 64, DType::f32};
  const std::vector<std::int32_t> lengths = {150};
  const Caches caches(*cpu, shape, lengths, 70);
  Random random(71);
  const Rows rows = scattered_rows(random, lengths, 30);
  Values q = random.values(rows.size(), 64);
  for (float& value : q.data) value *= 1000;
  const Values out = attend(*cpu, caches, q, rows.span(), 1.0f);
  for (const float value : out.data) REQUIRE(std::abs(value) <= caches.largest_value() * 1.0001f);
}

}  // namespace
}  // namespace baton::test
