// SPDX-License-Identifier: Apache-2.0
// A decode step allocates nothing once a step of its size has run. The sanitizers have operators new of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/engine/ops/fixtures.h"

namespace {
std::atomic<std::int64_t> allocations{0};  // by operator new, of the whole test program
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* data = std::malloc(bytes != 0 ? bytes : 1)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace baton::test {
namespace {

TEST_CASE("the second step of a size allocates nothing") {
  Random random(80);
  const auto backend = make_cpu_backend(2);
  const KvShape shape{2, 32, DType::bf16};
  const Buffer memory = backend->allocate(2 * backend->kv_slab_bytes(shape, 128));
  const KvSlab slab{memory.data(), memory.data() + memory.bytes() / 2, 128};
  const auto w = load(*backend, random.values(256, 128), DType::bf16);
  const auto rounds = load(*backend, random.values(256, 128), DType::bf16, Activations::bf16);
  const std::vector<float> weight(128, 1.0f), head_weight(32, 1.0f);
  const std::vector<std::int32_t> sequence = {0, 0, 0}, position = {90, 17, 60}, begin = {0, 3, 60}, ids = {1, 255, 0};
  const Values kv = random.values(3, 64), angles = random.values(3, 16);
  Values x(3, 128), normed(3, 128), wide(3, 256), out(3, 128);
  const auto step = [&] {
    backend->embed(x.view(), *w, ids);
    backend->rms_norm(normed.view(), x.view(), weight, 1e-6f);
    backend->matmul(wide.view(), normed.view(), *w, {});
    backend->matmul(wide.view(), normed.view(), *rounds, {});
    backend->head_rms_norm(normed.view(), head_weight, 1e-6f);
    backend->rope(normed.view(), 32, {angles.view(), angles.view()});
    backend->kv().store_kv({&slab, 1}, shape, {sequence, position, begin}, kv.view(), kv.view(),
                           {angles.view(), angles.view()});
    backend->kv().attention(out.view(), normed.view(), {&slab, 1}, shape, {sequence, position, begin}, 0.2f);
    backend->add_rms_norm(normed.view(), x.view(), out.view(), weight, 1e-6f);
    backend->silu_mul(out.view(), wide.view());
    backend->gelu_mul(out.view(), wide.view());
    backend->silu_mul(out.view(), wide.view(), {7, 1});
    backend->scale(out.view(), 2.0f);
    backend->soft_cap(out.view(), 2.0f);
  };
  const auto run = [&] {
    const std::int64_t before = allocations;
    step();
    return allocations - before;
  };
  REQUIRE(run() > 0);  // so the count counts
  REQUIRE(run() == 0);
}

}  // namespace
}  // namespace baton::test
#endif
