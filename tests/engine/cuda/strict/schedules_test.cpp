// SPDX-License-Identifier: Apache-2.0
// Texts that move between a device and pinned memory while kernels run, in random order: what is followed is there,
// what is released is not used any more. The strict runtime checks every access against every other.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>

#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/kernels/simt.cuh"
#include "tests/support/strict/strict.h"

namespace baton::test::schedules_test {
namespace {

constexpr std::int64_t kHalf = 2048;  // numbers; whole pages, which kernels are seen by
constexpr std::size_t kHalfBytes = kHalf * sizeof(std::int32_t);

void fill(std::int32_t* out, std::int32_t value, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = value;
}
void count_others(const std::int32_t* in, std::int32_t value, std::int64_t count, std::int32_t* wrong) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (in[i] != value) ++*wrong;
  }
}

/// Some texts, each nowhere, on the device or in pinned memory.
class World {
 public:
  explicit World(std::uint32_t seed, int device) : random_(seed), runtime_(cuda::make_device_runtime(device)) {
    wrong_ = static_cast<std::int32_t*>(runtime_->allocate(sizeof(std::int32_t)));
    runtime_->clear(wrong_, sizeof(std::int32_t));
  }
  ~World() {
    for (Text& text : texts_) {
      if (text.place == Place::device) runtime_->release(text.memory);
    }
    runtime_->release(wrong_);
    texts_ = {};
    kept_.clear();
  }
  void act() {
    if (!kept_.empty() && random_() % 4 == 0) forget();
    Text& text = texts_[random_() % texts_.size()];
    switch (text.place) {
      case Place::nowhere:
        return make(text);
      case Place::device:
        return random_() % 3 == 0 ? move_down(text) : random_() % 3 == 0 ? drop(text) : use(text);
      case Place::host:
        return random_() % 4 == 0 ? look(text) : move_up(text);
    }
  }
  std::int32_t wrong() {
    cuda::Staging staging(*runtime_, 4096);
    std::int32_t count = 0;
    staging.to_host(std::as_writable_bytes(std::span(&count, 1)), wrong_);
    return count + seen_wrong_;
  }
  int moves = 0;

 private:
  enum class Place : std::uint8_t { nowhere, device, host };
  struct Text {
    Place place = Place::nowhere;
    std::int32_t value = 0;
    std::int32_t* memory = nullptr;
    TransferId arriving[2] = {};  // of its halves; 0: there
    Buffer host;
  };

  void make(Text& text) {
    text.value = ++last_value_;
    text.memory = static_cast<std::int32_t*>(runtime_->allocate(2 * kHalfBytes));
    text.arriving[0] = text.arriving[1] = 0;
    text.place = Place::device;
    launch(runtime_->stream(), dim3(1), 32, 0, fill, text.memory, text.value, 2 * kHalf);
  }
  void drop(Text& text) {
    std::int32_t* memory = text.memory;
    text.place = Place::nowhere;
    if (random_() % 2 == 0) return runtime_->release(memory);
    std::thread([&] { runtime_->release(memory); }).join();  // any thread may
  }
  /// A kernel reads the first half, or both.
  void use(Text& text) {
    const std::int64_t halves = 1 + random_() % 2;
    for (std::int64_t half = 0; half < halves; ++half) runtime_->follow(std::exchange(text.arriving[half], 0));
    launch(runtime_->stream(), dim3(1), 32, 0, count_others, static_cast<const std::int32_t*>(text.memory), text.value,
           halves * kHalf, wrong_);
  }
  TransferId transfer(Text& text, std::int64_t first, std::int64_t halves, bool upload) {
    const TransferId id = runtime_->transfer({.memory = text.memory,
                                              .device = text.memory + first * kHalf,
                                              .host = text.host.data() + static_cast<std::size_t>(first) * kHalfBytes,
                                              .bytes = static_cast<std::size_t>(halves) * kHalfBytes,
                                              .upload = upload,
                                              .after = pinned_.last_use(text.host.data())});
    pinned_.used_by(text.host.data(), id, upload);
    return id;
  }
  void move_down(Text& text) {
    for (TransferId& one : text.arriving) runtime_->follow(std::exchange(one, 0));
    text.host = pinned_.allocate(2 * kHalfBytes);
    transfer(text, 0, 2, false);
    runtime_->release(text.memory);
    text.place = Place::host;
    ++moves;
  }
  void move_up(Text& text) {
    text.memory = static_cast<std::int32_t*>(runtime_->allocate(2 * kHalfBytes));
    for (const int half : {0, 1}) text.arriving[half] = transfer(text, half, 1, true);
    kept_.push_back(std::move(text.host));
    text.place = Place::device;
  }
  /// Memory of the host that was copied from serves something else, or goes back to the pool while the copy runs.
  void forget() {
    const auto at = kept_.begin() + static_cast<std::ptrdiff_t>(random_() % kept_.size());
    if (random_() % 2 == 0) {
      runtime_->wait_for(pinned_.last_use(at->data()));
      std::memset(at->data(), 7, at->bytes());
    }
    kept_.erase(at);
  }
  void look(Text& text) {
    runtime_->wait_for(pinned_.last_use(text.host.data()));
    const auto* values = reinterpret_cast<const std::int32_t*>(text.host.data());
    seen_wrong_ += std::all_of(values, values + 2 * kHalf, [&](std::int32_t x) { return x == text.value; }) ? 0 : 1;
  }

  std::mt19937 random_;
  std::unique_ptr<cuda::Runtime> runtime_;
  cuda::PinnedPool pinned_{*runtime_};
  std::int32_t* wrong_ = nullptr;
  std::array<Text, 4> texts_;
  std::vector<Buffer> kept_;  // copied from, perhaps still
  std::int32_t last_value_ = 0, seen_wrong_ = 0;
};

TEST_CASE("transfers that run while kernels do break no rule in any order", "[transfers]") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    const int device = seed % 3 == 0 ? 1 : 0;
    strict::restart({.devices = {{}, {}},
                     .lateness = seed % 2 == 0 ? strict::Lateness::late : strict::Lateness::some,
                     .seed = seed});
    INFO("seed " << seed);
    {
      World world(seed, device);
      for (int i = 0; i < 200; ++i) world.act();
      REQUIRE(world.wrong() == 0);
      REQUIRE(world.moves > 5);
    }
    for (const std::string& what : strict::take_reports_and_leaks()) FAIL(what);
  }
}

}  // namespace
}  // namespace baton::test::schedules_test
