// SPDX-License-Identifier: Apache-2.0
// What reuse asks of a backend beside the layers: raw keys, values compared, attention received, rows between types.
#include "tests/engine/ops/reuse_cases.h"
#include "tests/engine/ops/subjects.h"

namespace baton::test::reuse_ops_test {
namespace {

using Catch::Contains;
using namespace reusing;

TEST_CASE("store_kv keeps raw keys, whatever type they come in, and passes over rows of no sequence", "[reuse]") {
  Random random(80);
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : kStored) {
      for (const std::int32_t width : {8, 48, 80, 256}) {
        const KvShape shape{2, width, dtype};
        INFO(backend.info().name << ", D " << width << " " << name_of(dtype));
        const std::int64_t cols = 2 * width;
        const Index position = some_positions(random, 128, 90);
        Index sequence = zeros(90), used = position;
        for (std::size_t i = 0; i < 90; i += 3) {
          sequence[i] = kNoSequence;
          used[i] = -1000;  // never looked at
        }
        const Values k = random.values(90, cols), v = random.values(90, cols);
        const Values cos = random.values(90, width / 2), sin = random.values(90, width / 2);
        const RopeAngles angles{cos.view(), sin.view()};
        const Slab wide(backend, shape, 128), narrow(backend, shape, 128), bare(backend, shape, 128);
        const Index begin = zeros(90);
        const RowSpan rows{sequence, used, begin};
        backend.kv().store_kv({&wide.slab, 1}, shape, rows, k.view(), v.view(), angles);
        Elements same_k(k, dtype), same_v(v, dtype);
        backend.kv().store_kv({&narrow.slab, 1}, shape, rows, same_k.view(), same_v.view(), angles);
        REQUIRE(same(wide.bytes(), narrow.bytes()));

        Elements expected(dtype, 128, cols);
        for (std::size_t i = 0; i < 90; ++i) {
          if (sequence[i] == kNoSequence) continue;
          const std::size_t row_bytes = static_cast<std::size_t>(cols) * size_of(dtype);
          std::memcpy(&expected.bytes[static_cast<std::size_t>(position[i]) * row_bytes], &same_k.bytes[i * row_bytes],
                      row_bytes);
        }
        REQUIRE(same(wide.raw(), expected.bytes));

        KvSlab without = bare.slab;  // keeping raw keys changes nothing else
        without.raw_keys = nullptr;
        backend.kv().store_kv({&without, 1}, shape, rows, k.view(), v.view(), angles);
        REQUIRE(same(bare.bytes().first(2 * bare.half), wide.bytes().first(2 * wide.half)));
        REQUIRE(std::ranges::all_of(bare.raw(), [](std::byte b) { return b == std::byte{0}; }));
      }
    }
  });
}

TEST_CASE("save_kv gives back raw keys and values exactly, and stored again they are the same cache", "[reuse]") {
  Random random(81);
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : kStored) {
      for (const std::int32_t width : {8, 40, 64, 256}) {
        const KvShape shape{3, width, dtype};
        INFO(backend.info().name << ", D " << width << " " << name_of(dtype));
        const std::int64_t cols = 3 * width;
        Index position(70);
        std::iota(position.begin(), position.end(), 20);
        const Index none = zeros(70);
        const Values k = random.values(70, cols), v = random.values(70, cols);
        const Values cos = random.values(70, width / 2), sin = random.values(70, width / 2);
        const Slab slab(backend, shape, 128), again(backend, shape, 128);
        backend.kv().store_kv({&slab.slab, 1}, shape, {none, position, none}, k.view(), v.view(),
                              {cos.view(), sin.view()});

        Elements raw(dtype, 51, cols + 16), value(dtype, 51, cols + 16);  // wider than needed: strides are kept
        const auto part = [&](Elements& all) { return all.view().col_range(8, 8 + cols); };
        backend.kv().save_kv(part(raw), part(value), slab.slab, shape, 32);
        Elements k_bits(k, dtype), v_bits(v, dtype);
        const auto row = [](TensorView view, std::int64_t i) {
          return std::span<const std::byte>(view.row_range(i, i + 1).data,
                                            static_cast<std::size_t>(view.cols) * size_of(view.dtype));
        };
        for (std::int64_t i = 0; i < 51; ++i) {
          REQUIRE(same(row(part(raw), i), row(k_bits.view(), i + 12)));
          REQUIRE(same(row(part(value), i), row(v_bits.view(), i + 12)));
          REQUIRE(
              std::ranges::all_of(row(raw.view().col_range(0, 8), i), [](std::byte b) { return b == std::byte{0}; }));
        }
        backend.kv().save_kv(k_bits.view(), v_bits.view(), slab.slab, shape, 20);
        backend.kv().store_kv({&again.slab, 1}, shape, {none, position, none}, k_bits.view(), v_bits.view(),
                              {cos.view(), sin.view()});
        REQUIRE(same(slab.bytes(), again.bytes()));
      }
    }
  });
}

TEST_CASE("value_deviation agrees with double, equal values give exactly zero", "[reuse]") {
  Random random(82);
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : kStored) {
      for (const auto& [heads, width] :
           {std::pair(1, 8), std::pair(2, 64), std::pair(3, 80), std::pair(8, 32), std::pair(2, 256)}) {
        const KvShape shape{heads, width, dtype};
        INFO(backend.info().name << ", K " << heads << " D " << width << " " << name_of(dtype));
        const std::int64_t cols = heads * width;
        const Slab slabs_of[] = {Slab(backend, shape, 128), Slab(backend, shape, 64)};
        const KvSlab slabs[] = {slabs_of[0].slab, slabs_of[1].slab};
        Index position = some_positions(random, 64, 60), sequence, begin = zeros(60);
        for (int i = 0; i < 60; ++i) sequence.push_back(i % 2);
        Values cached = random.values(60, cols), fresh = random.values(60, cols);
        const Values no_angles(60, 0);
        const auto set_head = [&](Values& values, std::int64_t row, float value) {
          for (std::int64_t d = 0; d < width; ++d) values.at(row, d) = value;
        };
        for (std::int64_t row = 0; row < 20; ++row) {  // equal after rounding
          for (std::int64_t c = 0; c < cols; ++c) {
            if (row % 4 == 3) cached.at(row, c) *= 1e-30f;
            fresh.at(row, c) = round_to(cached.at(row, c), dtype);
          }
        }
        set_head(cached, 2, 0), set_head(fresh, 2, 0);
        set_head(cached, 25, 0);
        set_head(fresh, 26, 0);
        set_head(cached, 27, 0), set_head(fresh, 27, 0);
        backend.kv().store_kv(slabs, shape, {sequence, position, begin}, cached.view(), cached.view(),
                              {no_angles.view(), no_angles.view()});
        for (std::size_t i = 50; i < 60; ++i) sequence[i] = kNoSequence, position[i] = 9999;

        std::vector<float> deviation(60, -7.0f);
        backend.kv().value_deviation(deviation, slabs, shape, {sequence, position, begin}, fresh.view(),
                                     ValueMeasure::cosine);
        std::vector<float> squared(60, -7.0f);
        backend.kv().value_deviation(squared, slabs, shape, {sequence, position, begin}, fresh.view(),
                                     ValueMeasure::squared);
        for (std::int64_t row = 0; row < 60; ++row) {
          INFO("row " << row);
          if (row >= 50) {
            REQUIRE(deviation[row] == -7.0f);
            REQUIRE(squared[row] == -7.0f);
            continue;
          }
          double sum = 0, squares = 0;
          for (std::int64_t head = 0; head < heads; ++head) {
            double dot = 0, a2 = 0, b2 = 0;
            for (std::int64_t d = head * width; d < (head + 1) * width; ++d) {
              const double a = round_to(fresh.at(row, d), dtype), b = round_to(cached.at(row, d), dtype);
              dot += a * b, a2 += a * a, b2 += b * b;
              squares += (a - b) * (a - b);
            }
            sum += a2 == 0 && b2 == 0 ? 1.0 : a2 == 0 || b2 == 0 ? 0.0 : dot / std::sqrt(a2) / std::sqrt(b2);
          }
          if (row < 20) {
            REQUIRE(deviation[row] == 0.0f);
            REQUIRE(squared[row] == 0.0f);
          } else {
            REQUIRE(std::abs(squared[row] - squares) <= 1e-6 * squares);
            REQUIRE(std::abs(deviation[row] - (1.0 - sum / heads)) <= 2e-7);  // one rounding of a number up to 2
          }
        }
      }
    }
  });
}

TEST_CASE("attention received agrees with double, for the sequences that record", "[reuse]") {
  for_each_subject([&](Backend& backend, const Subject& subject, const Way& way) {
    std::uint32_t seed = 90;
    for (const auto& [heads, shape] : kGroups) {
      for (const std::int64_t count : {1, 5, 90}) {
        if (count * heads > subject.most_work) continue;
        Random random(++seed);
        const Caches caches(backend, shape, kLengths, seed);
        const Rows rows = scattered(random, kLengths, count);
        const Values q = random.values(count, heads * shape.head_dim);
        Sums sums(caches);
        std::vector<float> sinks;  // of every second case: they take weight, and receive none
        for (int head = 0; seed % 2 == 0 && head < heads; ++head) sinks.push_back(static_cast<float>(head % 3) - 1.0f);
        const Values plain = attend(backend, caches, q, rows, 0, count, {}, sinks);
        require_same_bits(attend(backend, caches, q, rows, 0, count, sums.pointers, sinks).data, plain.data);

        std::vector<std::vector<double>> expected, bound;
        for (const auto& s : sums.sums) expected.emplace_back(s.size()), bound.emplace_back(s.size());
        for (std::int64_t t = 0; t < count; ++t) {
          const std::int32_t s = rows.sequence[t];
          for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t kv = h / (heads / shape.kv_heads) * shape.head_dim;
            std::vector<double> weight;
            double norm = 0, sum = sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[h]));
            for (std::int32_t key = rows.begin[t]; key <= rows.position[t]; ++key) {
              double score = 0;
              for (std::int64_t d = 0; d < shape.head_dim; ++d) {
                score += static_cast<double>(q.at(t, h * shape.head_dim + d)) *
                         round_to(caches.keys[s].at(key, kv + d), shape.dtype);
              }
              weight.push_back(std::exp(score * 0.25));
              sum += weight.back();
            }
            for (std::int64_t d = 0; d < shape.head_dim; ++d) norm += std::pow(q.at(t, h * shape.head_dim + d), 2);
            // A score of products of norms |q| and about sqrt(D) is off by its tolerance, and the weight by as much.
            const float width = static_cast<float>(shape.head_dim);
            const double error =
                2 *
                    (sum_tolerance(shape.head_dim, static_cast<float>(std::sqrt(norm)), std::sqrt(width)) +
                     2 * subject.attention_rounding(shape) * std::sqrt(norm * shape.head_dim)) *
                    0.25 +
                16 * kEpsilon;
            for (std::int32_t key = rows.begin[t]; key < rows.position[t]; ++key) {
              const double units = weight[static_cast<std::size_t>(key - rows.begin[t])] / sum / kAttentionUnit;
              const std::size_t at = kv / shape.head_dim * caches.slabs[s].capacity + key;
              expected[s][at] += units;
              bound[s][at] += 1.01 + units * error;  // each is rounded to a whole unit, the largest ones by one at most
            }
          }
        }
        INFO(backend.info().name << " " << way.name << " H " << heads << " K " << shape.kv_heads << " D "
                                 << shape.head_dim << ", rows " << count);
        for (std::size_t s = 0; s < sums.sums.size(); ++s) {
          for (std::size_t key = 0; key < sums.sums[s].size(); ++key) {
            const double actual = static_cast<double>(sums.sums[s][key]);
            const double wanted = sums.pointers[s] == nullptr ? 0.0 : expected[s][key];
            if (std::abs(actual - wanted) <= bound[s][key]) continue;
            FAIL("sequence " << s << " key " << key << ": got " << actual << ", expected " << wanted << " +- "
                             << bound[s][key]);
          }
        }
      }
    }
  });
}

TEST_CASE("rows are gathered and scattered between bf16 and f32", "[reuse]") {
  Random random(83);
  const Values x = random.values(40, 37);
  const Index index = some_positions(random, 40, 25);
  for_each_backend([&](Backend& backend) {
    INFO(backend.info().name);
    for (const DType from : kStored) {
      for (const DType to : kStored) {
        Elements all(x, from), some(to, 25, 37), back(from, 40, 37);
        backend.gather_rows(some.view(), all.view(), index);
        backend.scatter_rows(back.view(), some.view(), index);
        for (std::int64_t i = 0; i < 25; ++i) {
          for (std::int64_t c = 0; c < 37; ++c) {
            const float value = round_to(round_to(x.at(index[i], c), from), to);
            const auto read = [&](Elements& e, std::int64_t row) {
              return e.dtype == DType::f32 ? e.view().f32(row)[c] : bf16_to_f32(e.view().bf16(row)[c]);
            };
            if (read(some, i) != value || read(back, index[i]) != round_to(value, from)) {
              FAIL(name_of(from) << " to " << name_of(to) << ", row " << i << " column " << c);
            }
          }
        }
        std::size_t untouched = 0;
        for (std::int32_t row = 0; row < 40; ++row) {
          const auto bytes =
              std::span(back.bytes).subspan(static_cast<std::size_t>(row) * 37 * size_of(from), 37 * size_of(from));
          untouched += std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }) ? 1 : 0;
        }
        REQUIRE(untouched == 15);
      }
    }
    Elements half(DType::f16, 25, 37), wide(x, DType::f32), narrow(DType::bf16, 25, 36);
    REQUIRE_THROWS_WITH(backend.gather_rows(half.view(), wide.view(), index),
                        Contains("expected f32 or bf16, got f16"));
    REQUIRE_THROWS_WITH(backend.scatter_rows(wide.view(), narrow.view(), index),
                        Contains("expected [25, 37], got [25, 36]"));
  });
}

TEST_CASE("reuse: what does not fit is refused", "[reuse]") {
  for_each_backend([](Backend& backend) {
    const KvShape shape{2, 8, DType::f32}, narrow{2, 8, DType::bf16};
    const Slab slab(backend, shape, 64);
    const Values k(1, 16, 1), none(1, 0);
    Elements half(k, DType::bf16), two(DType::f32, 2, 16);
    const Index zero = {0}, no_one = {kNoSequence}, two_ones = {1};
    const RowSpan row{zero, zero, zero}, nobody{no_one, zero, zero}, other{two_ones, zero, zero};
    const RopeAngles angles{none.view(), none.view()};
    const std::span<const KvSlab> slabs(&slab.slab, 1);
    REQUIRE_THROWS_WITH(backend.kv().store_kv(slabs, shape, row, half.view(), half.view(), angles),
                        Contains("expected f32, got bf16"));
    REQUIRE_THROWS_WITH(backend.kv().store_kv(slabs, narrow, row, half.view(), k.view(), angles),
                        Contains("store_kv v: expected bf16"));
    REQUIRE_THROWS_WITH(backend.kv().store_kv(slabs, shape, other, k.view(), k.view(), angles),
                        Contains("outside [0, 1)"));

    KvSlab bare = slab.slab;
    bare.raw_keys = nullptr;
    REQUIRE_THROWS_WITH(backend.kv().save_kv(two.view(), two.view(), bare, shape, 0), Contains("keeps no raw keys"));
    REQUIRE_THROWS_WITH(backend.kv().save_kv(two.view(), two.view(), slab.slab, shape, 63), Contains("[63, 65)"));
    REQUIRE_THROWS_WITH(backend.kv().save_kv(two.view(), two.view(), slab.slab, narrow, 0),
                        Contains("expected bf16, got f32"));

    std::vector<float> out(2);
    REQUIRE_THROWS_WITH(backend.kv().value_deviation(out, slabs, shape, row, k.view(), ValueMeasure::cosine),
                        Contains("expected 1 values, got 2"));
    REQUIRE_THROWS_WITH(
        backend.kv().value_deviation({out.data(), 1}, slabs, narrow, row, half.view(), ValueMeasure::cosine),
        Contains("expected f32, got bf16"));
    backend.kv().value_deviation({out.data(), 1}, {}, shape, nobody, k.view(), ValueMeasure::squared);

    Values q(1, 16, 1), result(1, 16);
    AttentionSum* const none_recorded[] = {nullptr, nullptr};
    REQUIRE_THROWS_WITH(backend.kv().attention(result.view(), q.view(), slabs, shape, row, 1, none_recorded),
                        Contains("expected 1 values, got 2"));
    REQUIRE_THROWS_WITH(backend.kv().attention(result.view(), q.view(), slabs, shape, nobody, 1),
                        Contains("= -1 is outside"));
  });
}

}  // namespace
}  // namespace baton::test::reuse_ops_test
