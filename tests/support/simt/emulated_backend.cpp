// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simt/emulated_backend.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "engine/cuda/host/cuda_backend.h"
#include "engine/cuda/kernels/kernels.h"
#include "tests/support/simt/late_transfers.h"

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
  std::int64_t free_bytes() const override { return kLimit; }
  cuda::Stream stream() override { return {capturing_ ? &recording_ : nullptr}; }

  void* allocate(std::size_t bytes) override {
    if (capturing_) throw BackendError("memory was allocated in a capture");
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
    transfers_.make_of(data);
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

  void clear(void* device, std::size_t bytes) override {
    run([=] { std::memset(device, 0, bytes); });
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    run([=] { std::memcpy(device, host, bytes); });
  }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    run([=] { std::memcpy(host, device, bytes); });
  }
  TransferId transfer(const cuda::Transfer& transfer) override { return transfers_.queue(transfer); }
  void follow(TransferId transfer) override {
    simt::counters().follows.push_back(simt::counters().launches);
    transfers_.make(transfer);
  }
  void wait_for(TransferId transfer) override { transfers_.make(transfer); }
  void multiply(const cuda::Product& p) override {
    if (cuda::takes_few_rows(p)) {  // as a device may
      cuda::launch_few_rows(stream(), p);
    } else {
      run([=] { multiplied(p); });
    }
  }

  void begin_capture() override {
    capturing_ = true;
    recording_.clear();
  }
  std::unique_ptr<cuda::Graph> end_capture() override {
    capturing_ = false;
    auto graph = std::make_unique<EmulatedGraph>();
    graph->work = std::move(recording_);
    return graph;
  }
  void replay(const cuda::Graph& graph) override {
    ++simt::counters().replays;
    for (const auto& work : static_cast<const EmulatedGraph&>(graph).work) work();
  }

  void mark() override { ++marks_; }
  std::vector<double> take_marks() override {
    std::vector<double> between(marks_ > 0 ? marks_ - 1 : 0, 1.0);  // each takes a millisecond
    marks_ = 0;
    return between;
  }

  void record(int /*event*/) override {}
  void wait(int /*event*/) override {}
  void synchronize() override {
    if (capturing_) throw BackendError("the host waited in a capture");
    transfers_.make_all();
  }

 private:
  struct EmulatedGraph final : cuda::Graph {
    simt::Recording work;
  };

  void run(std::function<void()> work) {
    if (capturing_) {
      recording_.push_back(std::move(work));
    } else {
      work();
    }
  }

  static void multiplied(const cuda::Product& p) {
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

  [[noreturn]] static void fail(const char* what, const void* data) {
    std::fprintf(stderr, "emulated device: %s (%p)\n", what, data);
    std::abort();
  }

  int multiprocessors_;
  LateTransfers transfers_;
  std::map<void*, std::size_t> blocks_;
  bool capturing_ = false;
  std::size_t marks_ = 0;
  simt::Recording recording_;
};

/// Device memory in one reservation that is closed whenever no device work runs. What is given back is not used again.
class SealedRuntime final : public cuda::Runtime {
 public:
  SealedRuntime() {
    base_ =
        static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) throw BackendError("cannot reserve memory");
    simt::gate() = [this](bool open) { set_open(open); };
  }
  ~SealedRuntime() override {
    simt::gate() = nullptr;
    munmap(base_, kBytes);
  }
  std::string name() const override { return "sealed"; }
  std::string description() const override { return "emulated, with memory that the host cannot touch"; }
  int multiprocessors() const override { return 2; }
  std::int64_t free_bytes() const override { return static_cast<std::int64_t>(kBytes - used_); }
  cuda::Stream stream() override { return plain_->stream(); }

  void* allocate(std::size_t bytes) override {
    const std::size_t size = (bytes + 255) / 256 * 256;
    if (size < bytes || size > kBytes - used_)
      throw BackendError(fmt::format("cannot allocate {} bytes of memory", bytes));
    used_ += size;
    return base_ + used_ - size;
  }
  void release(void* /*data*/) noexcept override {}
  void* allocate_pinned(std::size_t bytes) override { return ::operator new (bytes, std::align_val_t{256}); }
  void release_pinned(void* data) noexcept override { ::operator delete (data, std::align_val_t{256}); }
  void clear(void* device, std::size_t bytes) override {
    const Open open(*this);
    plain_->clear(device, bytes);
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    const Open open(*this);
    plain_->copy_to_device(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    const Open open(*this);
    plain_->copy_to_host(host, device, bytes);
  }
  TransferId transfer(const cuda::Transfer& transfer) override { return plain_->transfer(transfer); }
  void follow(TransferId transfer) override {
    const Open open(*this);
    plain_->follow(transfer);
  }
  void wait_for(TransferId transfer) override {
    const Open open(*this);
    plain_->wait_for(transfer);
  }
  void multiply(const cuda::Product& product) override {
    const Open open(*this);
    plain_->multiply(product);
  }
  void begin_capture() override { plain_->begin_capture(); }
  std::unique_ptr<cuda::Graph> end_capture() override { return plain_->end_capture(); }
  void replay(const cuda::Graph& graph) override {
    const Open open(*this);
    plain_->replay(graph);
  }
  void mark() override { plain_->mark(); }
  std::vector<double> take_marks() override { return plain_->take_marks(); }
  void record(int /*event*/) override {}
  void wait(int /*event*/) override {}
  void synchronize() override {
    const Open open(*this);
    plain_->synchronize();
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  struct Open {
    explicit Open(SealedRuntime& owner_in) : owner(owner_in) { owner.set_open(true); }
    ~Open() { owner.set_open(false); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    SealedRuntime& owner;
  };
  void set_open(bool open) {
    opened_ += open ? 1 : -1;
    if (opened_ == (open ? 1 : 0)) mprotect(base_, kBytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

  std::unique_ptr<cuda::Runtime> plain_ = make_emulated_runtime();
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  int opened_ = 0;  // how often, by who still needs it
};

}  // namespace

std::unique_ptr<Backend> make_sealed_backend() { return cuda::make_backend_over(std::make_unique<SealedRuntime>()); }

std::unique_ptr<cuda::Runtime> make_emulated_runtime(int multiprocessors) {
  return std::make_unique<EmulatedRuntime>(multiprocessors);
}

std::unique_ptr<Backend> make_emulated_backend(int multiprocessors) {
  return cuda::make_backend_over(make_emulated_runtime(multiprocessors));
}

}  // namespace baton::test
