// SPDX-License-Identifier: Apache-2.0
// The emulated backend over simulated streams: the engine's transfers (engine/cuda/host/transfers.cpp) beside a main
// stream whose kernels and copies run late.
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/cuda/host/cuda_backend.h"
#include "engine/cuda/host/transfers.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/streams.h"

namespace baton::test {
namespace {

class StreamedRuntime final : public cuda::Runtime {
 public:
  StreamedRuntime() {
    streams().on_free = [this](void* memory) { memory_->release(memory); };
  }
  ~StreamedRuntime() override {
    synchronize();
    streams().on_free = nullptr;
  }

  std::string name() const override { return "streamed"; }
  std::string description() const override { return "CUDA kernels emulated on the host, over streams that run late"; }
  int multiprocessors() const override { return 2; }
  std::int64_t free_bytes() const override { return memory_->free_bytes(); }
  cuda::Stream stream() override {
    flush();
    return {capturing_ ? &recording_ : &launched_};
  }

  void* allocate(std::size_t bytes) override {
    void* data = memory_->allocate(bytes);
    give([=] { std::memset(data, 0xff, bytes); });  // whoever had it before may write to it until now
    return data;
  }
  void release(void* data) noexcept override {
    const std::lock_guard lock(mutex_);
    given_back_.push_back(data);
  }
  void* allocate_pinned(std::size_t bytes) override { return memory_->allocate_pinned(bytes); }
  void release_pinned(void* data) noexcept override { memory_->release_pinned(data); }

  void clear(void* device, std::size_t bytes) override {
    give([=] { std::memset(device, 0, bytes); });
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    give([=] { std::memcpy(device, host, bytes); });
  }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    give([=] { std::memcpy(host, device, bytes); });
  }
  TransferId transfer(const cuda::Transfer& transfer) override {
    flush();
    return transfers_.queue(transfer);
  }
  void follow(TransferId transfer) override {
    flush();
    transfers_.follow(transfer);
  }
  void wait_for(TransferId transfer) override { transfers_.wait_for(transfer); }
  void multiply(const cuda::Product& product) override {
    give([this, product] { memory_->multiply(product); });
  }

  void begin_capture() override {
    flush();
    capturing_ = true;
  }
  std::unique_ptr<cuda::Graph> end_capture() override {
    capturing_ = false;
    auto graph = std::make_unique<CapturedGraph>();
    graph->work = std::exchange(recording_, {});
    return graph;
  }
  void replay(const cuda::Graph& graph) override {
    ++simt::counters().replays;
    for (const auto& work : static_cast<const CapturedGraph&>(graph).work) give(work);
  }

  void mark() override { ++marks_; }
  std::vector<double> take_marks() override {
    flush();
    cudaStreamSynchronize(main_.get());
    return std::vector<double>(marks_ > 0 ? std::exchange(marks_, 0) - 1 : 0, 1.0);
  }
  void record(int event) override {
    flush();
    cudaEventRecord(events_[event].get(), main_.get());
  }
  void wait(int event) override { cudaEventSynchronize(events_[event].get()); }
  void synchronize() override {
    flush();
    cudaStreamSynchronize(main_.get());
    transfers_.synchronize();
  }

 private:
  struct CapturedGraph final : cuda::Graph {
    simt::Recording work;
  };

  void give(std::function<void()> work) {
    if (capturing_) return recording_.push_back(std::move(work));
    flush();
    streams().give(*main_.get(), {std::move(work), nullptr, nullptr});
  }
  /// What kernels were launched since, and what was given back, in any order: nobody uses it any more.
  void flush() {
    if (capturing_) return;
    for (auto& work : std::exchange(launched_, {})) streams().give(*main_.get(), {std::move(work), nullptr, nullptr});
    std::vector<void*> memory;
    {
      const std::lock_guard lock(mutex_);
      memory.swap(given_back_);
    }
    for (void* one : memory) transfers_.release(one);
  }

  std::unique_ptr<cuda::Runtime> memory_ = make_emulated_runtime();
  cuda::StreamOwner main_;
  cuda::Transfers transfers_{main_.get()};
  cuda::EventOwner events_[cuda::kEvents];
  simt::Recording launched_, recording_;
  bool capturing_ = false;
  std::size_t marks_ = 0;
  std::mutex mutex_;
  std::vector<void*> given_back_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Backend> make_streamed_backend() {
  return cuda::make_backend_over(std::make_unique<StreamedRuntime>());
}

}  // namespace baton::test
