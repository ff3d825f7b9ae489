// SPDX-License-Identifier: Apache-2.0
// What the backends refuse, and with which words; what their memory is like.
#include "tests/engine/ops/subjects.h"

namespace baton::test::inputs_test {
namespace {

using Catch::Contains;

TEST_CASE("matrices that do not fit are refused with expected and actual") {
  for_each_backend([](Backend& backend) {
    Values w(4, 6, 1), x(2, 6, 1), out(2, 4), narrow(2, 5), short_out(1, 4), wide(3, 7, 1);
    const auto matrix = load(backend, w, DType::bf16);
    const std::vector<float> bias(3);
    REQUIRE_THROWS_WITH(backend.matmul(out.view(), narrow.view(), *matrix, {}),
                        Contains("matmul x: expected [2, 6], got [2, 5]"));
    REQUIRE_THROWS_WITH(backend.matmul(short_out.view(), x.view(), *matrix, {}),
                        Contains("matmul out: expected [2, 4], got [1, 4]"));
    REQUIRE_THROWS_WITH(backend.matmul(out.view(), x.view(), *matrix, bias), Contains("expected 4 values, got 3"));
    TensorView half = x.view();
    half.dtype = DType::bf16;
    const auto full = load(backend, w, DType::f32);
    REQUIRE_THROWS_WITH(backend.matmul(out.view(), half, *full, {}), Contains("expected f32, got bf16"));

    const ConstTensorView parts[] = {w.view(), wide.view()};
    REQUIRE_THROWS_WITH(backend.load_matrix(parts, DType::bf16), Contains("part 1: expected 6 columns, got 7"));
    REQUIRE_THROWS_WITH(backend.load_matrix({}, DType::bf16), Contains("no parts"));
    REQUIRE_THROWS_WITH(backend.load_matrix({parts, 1}, DType::f16), Contains("got f16"));
    REQUIRE_THROWS_WITH(backend.load_matrix({parts, 1}, DType::bf16, Activations::int8), Contains("got int8"));
    REQUIRE_THROWS_WITH(backend.load_matrix({parts, 1}, DType::f32, Activations::bf16),
                        Contains("need weights in bf16, got f32"));
    ConstTensorView huge = w.view();
    huge.rows = std::int64_t{1} << 40;
    huge.cols = huge.stride = std::int64_t{1} << 40;
    REQUIRE_THROWS_WITH(backend.load_matrix({&huge, 1}, DType::bf16), Contains("is invalid: expected 0 to"));

    const std::vector<std::int32_t> ids = {0, 4};
    Values rows(2, 6);
    REQUIRE_THROWS_WITH(backend.embed(rows.view(), *matrix, ids), Contains("[1] = 4 is outside [0, 4)"));
  });
}

TEST_CASE("rows that point outside their cache are refused") {
  for_each_backend([](Backend& backend) {
    const KvShape shape{2, 8, DType::f32};
    const Buffer memory = backend.allocate(2 * backend.kv_slab_bytes(shape, 64));
    const KvSlab slab{memory.data(), memory.data() + memory.bytes() / 2, 64};
    Values q(1, 32), out(1, 32);
    const auto attend = [&](std::int32_t sequence, std::int32_t position, std::int32_t begin) {
      backend.kv().attention(out.view(), q.view(), {&slab, 1}, shape, {{&sequence, 1}, {&position, 1}, {&begin, 1}}, 1);
    };
    attend(0, 63, 63);
    REQUIRE_THROWS_WITH(attend(1, 0, 0), Contains("rows.sequence: [0] = 1 is outside [0, 1)"));
    REQUIRE_THROWS_WITH(attend(0, 64, 0), Contains("position 64 is outside [0, 64)"));
    REQUIRE_THROWS_WITH(attend(0, -1, 0), Contains("position -1"));
    REQUIRE_THROWS_WITH(attend(0, 5, 6), Contains("key_begin 6 is outside [0, 5]"));
    REQUIRE_THROWS_WITH(attend(0, 5, -1), Contains("key_begin -1"));
    Values three_heads(1, 24);
    const std::int32_t zero = 0;
    const RowSpan row{{&zero, 1}, {&zero, 1}, {&zero, 1}};
    REQUIRE_THROWS_WITH(backend.kv().attention(three_heads.view(), three_heads.view(), {&slab, 1}, shape, row, 1),
                        Contains("24 query columns are not a multiple of 2 kv heads of 8"));
    Values k(1, 16), angles(1, 5);
    REQUIRE_THROWS_WITH(
        backend.kv().store_kv({&slab, 1}, shape, row, k.view(), k.view(), {angles.view(), angles.view()}),
        Contains("10 rotated columns do not fit heads of 8"));
    Values many(2, 16);
    REQUIRE_THROWS_WITH(backend.kv().load_kv(many.view(), many.view(), slab, shape, 63), Contains("[63, 65)"));
    REQUIRE_THROWS_WITH(backend.kv_slab_bytes(shape, 65), Contains("multiple of 64, got 65"));
    for (const std::int32_t width : {0, 12, 520}) {
      REQUIRE_THROWS_WITH(backend.kv_slab_bytes({2, width, DType::f32}, 64), Contains("got " + std::to_string(width)));
    }
    REQUIRE_THROWS_WITH(backend.kv_slab_bytes({2, 8, DType::f16}, 64), Contains("got f16"));
  });
}

TEST_CASE("row operations refuse what does not fit") {
  for_each_backend([](Backend& backend) {
    Values x(2, 6), y(2, 6), other(2, 5), gate_up(2, 11);
    const std::vector<float> weight(6, 1), four(4, 1);
    const std::vector<std::int32_t> index = {0, 2};
    REQUIRE_THROWS_WITH(backend.rms_norm(y.view(), x.view(), four, 0), Contains("expected [2, 4], got [2, 6]"));
    REQUIRE_THROWS_WITH(backend.add_rms_norm(y.view(), x.view(), other.view(), weight, 0), Contains("got [2, 5]"));
    REQUIRE_THROWS_WITH(backend.add(x.view(), other.view()), Contains("got [2, 5]"));
    REQUIRE_THROWS_WITH(backend.head_rms_norm(x.view(), four, 0), Contains("6 columns are not groups of 4"));
    REQUIRE_THROWS_WITH(backend.silu_mul(other.view(), gate_up.view()), Contains("expected [2, 10], got [2, 11]"));
    REQUIRE_THROWS_WITH(backend.gelu_mul(other.view(), gate_up.view()), Contains("expected [2, 10], got [2, 11]"));
    REQUIRE_THROWS_WITH(backend.silu_mul(other.view(), gate_up.view(), {7, 1}),
                        Contains("expected [2, 10], got [2, 11]"));
    REQUIRE_THROWS_WITH(backend.add_weighted_rows(y.view(), x.view(), index, std::vector<float>(2, 1)),
                        Contains("[1] = 2 is outside [0, 2)"));
    REQUIRE_THROWS_WITH(backend.add_weighted_rows(y.view(), x.view(), std::vector<std::int32_t>{0, 1}, weight),
                        Contains("expected 2 values, got 6"));
    StreamOperations& streams = backend.streams();
    Values two(3, 8), four_wide(3, 4);
    REQUIRE_THROWS_WITH(streams.mix(two.view(), two.view(), four_wide.view(), four_wide.view(), 3),
                        Contains("8 and 4 columns are not streams of 3"));
    REQUIRE_THROWS_WITH(streams.mix(two.view(), two.view(), four_wide.view(), four_wide.view(), 4),
                        Contains("mix weight: expected [3, 2], got [3, 4]"));
    REQUIRE_THROWS_WITH(streams.correct(two.view(), two.view(), four_wide.view(), four_wide.view(), 2),
                        Contains("stream 2 is outside [0, 2)"));
    REQUIRE_THROWS_WITH(streams.match_rms(two.view(), four_wide.view(), 1.0f), Contains("match_rms like"));
    REQUIRE_THROWS_WITH(streams.match_rms(two.view(), two.view(), 0.0f), Contains("above 0"));
    REQUIRE_THROWS_WITH(streams.keep_peaks(two.view(), std::numeric_limits<float>::infinity()), Contains("finite"));
    REQUIRE_THROWS_WITH(streams.scale_columns(two.view(), two.view(), weight), Contains("scale_columns weight"));
    for (const float cap : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()})
      REQUIRE_THROWS_WITH(backend.soft_cap(x.view(), cap), Contains("expected a cap above 0"));
    REQUIRE_THROWS_WITH(backend.gather_rows(y.view(), x.view(), index), Contains("[1] = 2 is outside [0, 2)"));
    REQUIRE_THROWS_WITH(backend.scatter_rows(y.view(), x.view(), index), Contains("[1] = 2 is outside [0, 2)"));
  });
}

TEST_CASE("no rows are no work") {
  for_each_backend([](Backend& backend) {
    const Values w(4, 6, 1);
    Values none(0, 6), out(0, 4), gate_up(0, 8);
    backend.matmul(out.view(), none.view(), *load(backend, w, DType::bf16), {});
    backend.rms_norm(none.view(), none.view(), std::vector<float>(6, 1), 0);
    backend.silu_mul(out.view(), gate_up.view());
    backend.gelu_mul(out.view(), gate_up.view());
    backend.silu_mul(out.view(), gate_up.view(), {7, 1});
    backend.scale(none.view(), 2);
    backend.soft_cap(none.view(), 2);
    backend.kv().attention(gate_up.view(), gate_up.view(), {}, {1, 8, DType::f32}, {}, 1);
    SUCCEED();
  });
}

TEST_CASE("memory is zeroed and aligned, too much of it is an error that says how much") {
  for_each_backend([](Backend& backend) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{9} << 20}) {
      for (int round = 0; round < 3; ++round) {  // memory that was used before as well
        const Buffer buffer = backend.allocate(bytes);
        REQUIRE(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
        REQUIRE(buffer.bytes() == bytes);
        std::size_t nonzero = 0;
        for (std::size_t i = 0; i < bytes; ++i) nonzero += buffer.data()[i] != std::byte{0};
        REQUIRE(nonzero == 0);
        std::memset(buffer.data(), 0xff, bytes);
      }
    }
    REQUIRE_THROWS_AS(backend.allocate(std::size_t{1} << 60), BackendError);
    REQUIRE_THROWS_WITH(backend.allocate(std::size_t{1} << 60), Contains("1152921504606846976 bytes"));
    REQUIRE_THROWS_AS(backend.allocate(SIZE_MAX), BackendError);
  });
}

}  // namespace
}  // namespace baton::test::inputs_test
