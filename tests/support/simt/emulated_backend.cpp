#include "tests/support/simt/emulated_backend.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "engine/cuda/cuda_backend.h"

namespace baton::test {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::size_t kLimit = std::size_t{1} << 34;  // more is refused, as a device would
constexpr int kGuardByte = 0xa5;

class EmulatedRuntime final : public cuda::Runtime {
 public:
  explicit EmulatedRuntime(int multiprocessors) : multiprocessors_(multiprocessors) {}
  ~EmulatedRuntime() override {
    if (!blocks_.empty()) {
      std::fprintf(stderr, "emulated device: %zu pieces of memory were not given back\n", blocks_.size());
      std::abort();
    }
  }

  std::string name() const override { return "emulated"; }
  std::string description() const override { return "CUDA kernels emulated on the host"; }
  int multiprocessors() const override { return multiprocessors_; }
  cuda::Stream stream() override { return nullptr; }

  void* allocate(std::size_t bytes) override {
    char* base = nullptr;
    if (bytes < kLimit) {
      base = static_cast<char*>(std::aligned_alloc(kGuard, (bytes + 2 * kGuard + kGuard - 1) / kGuard * kGuard));
    }
    if (base == nullptr) throw BackendError(fmt::format("cannot allocate {} bytes of memory", bytes));
    std::memset(base, kGuardByte, kGuard);
    std::memset(base + kGuard, 0xff, bytes);  // NaN
    std::memset(base + kGuard + bytes, kGuardByte, kGuard);
    blocks_[base + kGuard] = bytes;
    return base + kGuard;
  }
  void release(void* data) noexcept override {
    const auto block = blocks_.find(data);
    if (block == blocks_.end()) fail("memory was given back that was not taken", data);
    const auto* begin = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (*(begin - 1 - i) != kGuardByte) fail("a kernel wrote before its memory", data);
      if (begin[block->second + i] != kGuardByte) fail("a kernel wrote past its memory", data);
    }
    blocks_.erase(block);
    std::free(static_cast<char*>(data) - kGuard);
  }
  void* allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void release_pinned(void* data) noexcept override { release(data); }

  void clear(void* device, std::size_t bytes) override { std::memset(device, 0, bytes); }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override { std::memcpy(device, host, bytes); }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }

  void multiply(const cuda::Product& p) override {
    const auto at = [&](const std::byte* data, std::int64_t i) {
      return p.dtype == DType::f32 ? reinterpret_cast<const float*>(data)[i]
                                   : bf16_to_f32(reinterpret_cast<const std::uint16_t*>(data)[i]);
    };
    for (std::int64_t t = 0; t < p.t; ++t) {
      for (std::int64_t n = 0; n < p.n; ++n) {
        float sum = p.bias == nullptr ? 0.0f : p.bias[n];
        for (std::int64_t c = 0; c < p.c; ++c) sum += at(p.x, t * p.x_stride + c) * at(p.w, n * p.w_stride + c);
        p.out[t * p.out_stride + n] = sum;
      }
    }
  }

  void record(int /*event*/) override {}
  void wait(int /*event*/) override {}
  void synchronize() override {}

 private:
  [[noreturn]] static void fail(const char* what, const void* data) {
    std::fprintf(stderr, "emulated device: %s (%p)\n", what, data);
    std::abort();
  }

  int multiprocessors_;
  std::map<void*, std::size_t> blocks_;
};

}  // namespace

std::unique_ptr<cuda::Runtime> make_emulated_runtime(int multiprocessors) {
  return std::make_unique<EmulatedRuntime>(multiprocessors);
}

std::unique_ptr<Backend> make_emulated_backend(int multiprocessors) {
  return cuda::make_backend_over(make_emulated_runtime(multiprocessors));
}

}  // namespace baton::test
