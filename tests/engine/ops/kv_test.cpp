// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/ops/subjects.h"

namespace baton::test::kv_test {
namespace {

struct Slab {
  Slab(Backend& backend, const KvShape& shape, std::int32_t capacity)
      : keys(backend.allocate(backend.kv_slab_bytes(shape, capacity))),
        values(backend.allocate(backend.kv_slab_bytes(shape, capacity))),
        slab{keys.data(), values.data(), capacity} {}
  Buffer keys, values;
  KvSlab slab;
};

/// The bits of a number; one and the same for every NaN, whose payload is the machine's own.
std::uint32_t bits_of(float value) { return std::isnan(value) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value); }

TEST_CASE("store_kv rounds, rotates, rounds again, load_kv reads it back") {
  for_each_backend([](Backend& backend) {
    const KvShape shape{1, 8, DType::bf16};
    const Slab cache(backend, shape, 64);
    Values k(1, 8), v(1, 8), cos(1, 1, 0.7071f), sin(1, 1, 0.7071f);
    k.data = {1.001f, 3, 5, 7, 1, 0, 0, 0};  // 1.001 is stored as 1 before it is turned
    v.data = {1.01171875f, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<std::int32_t> sequence = {0}, position = {37}, begin = {0};
    backend.kv().store_kv({&cache.slab, 1}, shape, {sequence, position, begin}, k.view(), v.view(),
                          {cos.view(), sin.view()});
    Values k_back(1, 8), v_back(1, 8);
    backend.kv().load_kv(k_back.view(), v_back.view(), cache.slab, shape, 37);
    const auto turned = [](double value) { return round_to(static_cast<float>(value), DType::bf16); };
    const double c = static_cast<double>(0.7071f);
    REQUIRE(k_back.data == std::vector<float>{turned(c - 3 * c), turned(c + 3 * c), 5, 7, 1, 0, 0, 0});
    REQUIRE(v_back.data == std::vector<float>{1.015625f, 2, 3, 4, 5, 6, 7, 8});
  });
}

TEST_CASE("kv: every position and column of several sequences comes back as in the reference") {
  Random random(30);
  const auto reference = make_reference_backend();
  const auto backends = subjects();
  for (const DType dtype : kStored) {
    for (const std::int32_t width : {8, 48, 64, 80, 256, 512}) {
      INFO("D " << width << " " << name_of(dtype));
      const KvShape shape{3, width, dtype};
      const std::int64_t cols = 3 * width;
      std::vector<std::int32_t> sequence, position, begin;
      for (std::int32_t s = 0; s < 2; ++s) {
        for (std::int32_t p = 0; p < 128; ++p) {
          sequence.push_back(s);
          position.push_back(p);
        }
      }
      for (std::size_t i = sequence.size() - 1; i > 0; --i) {  // in random order
        const std::size_t j = random.integer(0, static_cast<std::int64_t>(i) + 1);
        std::swap(sequence[i], sequence[j]);
        std::swap(position[i], position[j]);
      }
      begin.assign(sequence.size(), 0);
      const auto rows = static_cast<std::int64_t>(sequence.size());
      const Values k = random.values(rows, cols), v = random.values(rows, cols);
      const Values cos = random.values(rows, width / 2), sin = random.values(rows, width / 2);
      const auto read = [&](Backend& backend) {
        const Slab first(backend, shape, 128), second(backend, shape, 192);
        const KvSlab slabs[] = {first.slab, second.slab};
        backend.kv().store_kv(slabs, shape, {sequence, position, begin}, k.view(), v.view(), {cos.view(), sin.view()});
        std::vector<float> all;
        for (const auto& [slab, from, count] : {std::tuple(slabs[0], 0, 128), std::tuple(slabs[1], 5, 100)}) {
          Values keys(count, cols), values(count, cols);
          backend.kv().load_kv(keys.view(), values.view(), slab, shape, from);
          all.insert(all.end(), keys.data.begin(), keys.data.end());
          all.insert(all.end(), values.data.begin(), values.data.end());
        }
        return all;
      };
      const std::vector<float> expected = read(*reference);
      for (const Subject& subject : backends) {
        subject.every_way([&](const Way& way) {
          if (way.fused) require_same_bits(read(*subject.backend), expected);
        });
      }
    }
  }
}

TEST_CASE("kv: runs of rows, stored a panel at a time, come back as in the reference") {
  Random random(31);
  const auto reference = make_reference_backend();
  const auto backends = subjects();
  for (const DType dtype : kStored) {
    for (const std::int32_t width : {8, 48, 64, 80, 128, 256, 512}) {
      INFO("D " << width << " " << name_of(dtype));
      const KvShape shape{2, width, dtype};
      const std::int64_t cols = 2 * width;
      std::vector<std::int32_t> sequence, position, begin;
      const auto add = [&](std::int32_t s, std::int32_t from, std::int32_t to) {
        for (std::int32_t p = from; p < to; ++p) {
          sequence.push_back(s);
          position.push_back(p);
        }
      };
      add(0, 3, 130);            // begins and ends inside a panel
      add(1, 32, 64);            // one panel
      add(kNoSequence, 64, 96);  // passed over
      add(1, 160, 180);          // no panel is whole
      begin.assign(sequence.size(), 0);
      const auto rows = static_cast<std::int64_t>(sequence.size());
      Values k = random.values(rows, cols), v = random.values(rows, cols);
      v.data[7] = std::numeric_limits<float>::quiet_NaN();
      const Values cos = random.values(rows, width / 2), sin = random.values(rows, width / 2);
      std::vector<std::uint16_t> k_bits, v_bits;  // as a segment holds them
      for (const float value : k.data) k_bits.push_back(f32_to_bf16(value));
      for (const float value : v.data) v_bits.push_back(f32_to_bf16(value));
      const auto stored = [&](const std::vector<std::uint16_t>& bits) -> ConstTensorView {
        return BasicView<const std::byte>{reinterpret_cast<const std::byte*>(bits.data()), DType::bf16, rows, cols,
                                          cols};
      };
      const auto read = [&](Backend& backend, bool from_bits) {
        const Slab first(backend, shape, 192), second(backend, shape, 256);
        KvSlab slabs[] = {first.slab, second.slab};
        const Buffer memory = backend.allocate(2 * 256 * static_cast<std::size_t>(cols) * size_of(dtype));
        const std::span<std::byte> raw(memory.data(), memory.bytes());
        slabs[0].raw_keys = raw.data();
        slabs[1].raw_keys = raw.data() + raw.size() / 2;
        backend.kv().store_kv(slabs, shape, {sequence, position, begin}, from_bits ? stored(k_bits) : k.view(),
                              from_bits ? stored(v_bits) : v.view(), {cos.view(), sin.view()});
        std::vector<std::uint32_t> all;
        for (const KvSlab& slab : slabs) {
          Values keys(slab.capacity, cols), values(slab.capacity, cols);
          backend.kv().load_kv(keys.view(), values.view(), slab, shape, 0);
          for (const float value : keys.data) all.push_back(bits_of(value));
          for (const float value : values.data) all.push_back(bits_of(value));
        }
        for (const std::byte byte : raw) all.push_back(static_cast<std::uint32_t>(byte));
        return all;
      };
      for (const bool from_bits : {false, true}) {
        if (from_bits && dtype == DType::f32) continue;
        const auto expected = read(*reference, from_bits);
        for (const Subject& subject : backends) {
          subject.every_way([&](const Way& way) {
            INFO(subject.backend->info().name << " " << way.name << (from_bits ? ", from bf16" : ""));
            if (way.fused) REQUIRE(read(*subject.backend, from_bits) == expected);
          });
        }
      }
    }
  }
}

TEST_CASE("kv: storing one position leaves the others as they were") {
  for_each_backend([](Backend& backend) {
    const KvShape shape{2, 48, DType::bf16};
    const Slab cache(backend, shape, 128);
    const Values ones(1, 96, 1), none(1, 0);
    const std::vector<std::int32_t> sequence = {0}, position = {70}, begin = {0};
    backend.kv().store_kv({&cache.slab, 1}, shape, {sequence, position, begin}, ones.view(), ones.view(),
                          {none.view(), none.view()});
    Values k(128, 96), v(128, 96);
    backend.kv().load_kv(k.view(), v.view(), cache.slab, shape, 0);
    for (std::int64_t p = 0; p < 128; ++p) {
      for (std::int64_t c = 0; c < 96; ++c) {
        if (k.at(p, c) != (p == 70 ? 1.0f : 0.0f) || v.at(p, c) != k.at(p, c))
          FAIL("position " << p << " column " << c);
      }
    }
  });
}

TEST_CASE("norms, store and rotation in one pass leave the bits of the three") {
  Random random(33);
  for_each_subject([&](Backend& backend, const Subject&, const Way&) {
    for (const DType dtype : kStored) {
      for (const std::int32_t width : {8, 48, 64, 128}) {
        for (const bool normed : {false, true}) {
          INFO("D " << width << " " << name_of(dtype) << " normed " << normed);
          const KvShape shape{2, width, dtype};
          const std::int64_t rows = 9;
          const std::vector<std::int32_t> sequence = {0, 0, 1, kNoSequence, 1, 0, 1, kNoSequence, 0};
          const std::vector<std::int32_t> position = {5, 70, 3, 9, 99, 6, 4, 8, 127}, begin(9, 0);
          const Values queries = random.values(rows, 3 * 2 * width), keys = random.values(rows, 2 * width);
          const Values v = random.values(rows, 2 * width);
          const auto [cos, sin] = random_angles(random, rows, width == 48 ? 10 : width / 2);
          const std::vector<float> q_norm = random.vector(width), k_norm = random.vector(width);
          const auto all_of = [&](const auto& run) {
            const std::size_t raw_bytes = 128 * 2 * static_cast<std::size_t>(width) * size_of(dtype);
            Slab first(backend, shape, 128), second(backend, shape, 128);
            const Buffer raw = backend.allocate(raw_bytes);
            second.slab.raw_keys = raw.data();
            const KvSlab slabs[] = {first.slab, second.slab};
            Values q = queries, k = keys;
            run(q, k, std::span<const KvSlab>(slabs));
            std::vector<float> all = q.data;
            for (const KvSlab& slab : slabs) {
              Values keys_back(128, 2 * width), values_back(128, 2 * width);
              backend.kv().load_kv(keys_back.view(), values_back.view(), slab, shape, 0);
              all.insert(all.end(), keys_back.data.begin(), keys_back.data.end());
              all.insert(all.end(), values_back.data.begin(), values_back.data.end());
            }
            std::vector<std::byte> bytes(raw_bytes);
            backend.copy_to_host(bytes, raw.data());
            for (const std::byte byte : bytes) all.push_back(static_cast<float>(byte));
            return all;
          };
          const RowSpan span{sequence, position, begin};
          const RopeAngles angles{cos.view(), sin.view()};
          const auto apart = all_of([&](Values& q, Values& k, std::span<const KvSlab> slabs) {
            if (normed) backend.head_rms_norm(q.view(), q_norm, 1e-5f);
            if (normed) backend.head_rms_norm(k.view(), k_norm, 1e-5f);
            backend.kv().store_kv(slabs, shape, span, k.view(), v.view(), angles);
            backend.rope(q.view(), width, angles);
          });
          const auto together = all_of([&](Values& q, Values& k, std::span<const KvSlab> slabs) {
            const HeadNorms norms = normed ? HeadNorms{q_norm, k_norm, 1e-5f} : HeadNorms{{}, {}, 1e-5f};
            backend.kv().norm_store_rope({q.view(), k.view(), v.view()}, norms, slabs, shape, span, angles);
          });
          require_same_bits(together, apart);
        }
      }
    }
  });
}

}  // namespace
}  // namespace baton::test::kv_test
