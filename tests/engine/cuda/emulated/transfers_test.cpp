// SPDX-License-Identifier: Apache-2.0
// Transfers beside a main stream, under schedules of the three streams at random: what is followed is there, what is
// given back is not used any more.
#include "engine/cuda/host/transfers.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "tests/support/simt/streams.h"

namespace baton::test {
namespace {

constexpr std::size_t kSize = 8;  // numbers of a piece of memory; a transfer brings half of them, or all
using Memory = std::array<int, kSize>;

/// Pieces of memory that serve again as soon as they are given back, and texts that move between them and the host.
class World {
 public:
  explicit World(std::uint32_t seed) : random_(seed) {
    streams().restart(seed, seed % 2 == 0 ? Eagerness::late : Eagerness::some);
    streams().on_free = [this](void* memory) {
      wrong += uses_[index_of(memory)] > 0 ? 1 : 0;
      taken_[index_of(memory)] = false;
    };
  }
  ~World() {
    transfers_.synchronize();
    cudaStreamSynchronize(main_.get());
    streams().on_free = nullptr;
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
  int wrong = 0;
  int moves = 0;

 private:
  enum class Place : std::uint8_t { nowhere, device, host };
  struct Text {
    Place place = Place::nowhere;
    int value = 0;
    Memory* memory = nullptr;
    std::array<TransferId, 2> arriving{};  // of its halves; 0: there
    std::shared_ptr<Memory> host;          // lives until nobody copies
    TransferId last_use = 0;               // of the host's memory
  };

  std::size_t index_of(const void* memory) const {
    return static_cast<std::size_t>(static_cast<const Memory*>(memory) - pool_.data());
  }
  void give(std::function<void()> work) { streams().give(*main_.get(), {std::move(work), nullptr, nullptr}); }

  Memory* allocate() {
    std::size_t i = 0;
    streams().run_until([&] {
      i = static_cast<std::size_t>(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
      return i < taken_.size();
    });
    taken_[i] = true;
    Memory* memory = &pool_[i];
    give([=] { memory->fill(-1); });  // who had it before may write to it until now
    return memory;
  }
  void make(Text& text) {
    text.value = ++last_value_;
    text.memory = allocate();
    text.arriving = {};
    text.place = Place::device;
    give([memory = text.memory, value = text.value] { memory->fill(value); });
  }
  void drop(Text& text) {
    transfers_.release(text.memory);
    text.place = Place::nowhere;
  }
  /// The main stream reads some of it, or all.
  void use(Text& text) {
    const std::size_t halves = 1 + random_() % 2;
    for (std::size_t half = 0; half < halves; ++half) transfers_.follow(std::exchange(text.arriving[half], 0));
    ++uses_[index_of(text.memory)];
    give([this, memory = text.memory, value = text.value, halves] {
      --uses_[index_of(memory)];
      wrong += !std::all_of(memory->begin(), memory->begin() + halves * kSize / 2, [&](int x) { return x == value; });
    });
  }
  void move_down(Text& text) {
    for (TransferId& one : text.arriving) transfers_.follow(std::exchange(one, 0));
    text.host = std::make_shared<Memory>();
    text.last_use = transfers_.queue({.memory = text.memory,
                                      .device = text.memory,
                                      .host = text.host.get(),
                                      .bytes = sizeof(Memory),
                                      .upload = false});
    transfers_.release(text.memory);
    text.place = Place::host;
    ++moves;
  }
  void move_up(Text& text) {
    text.memory = allocate();
    for (std::size_t half = 0; half < 2; ++half) {
      text.last_use = transfers_.queue({.memory = text.memory,
                                        .device = text.memory->data() + half * kSize / 2,
                                        .host = text.host->data() + half * kSize / 2,
                                        .bytes = sizeof(Memory) / 2,
                                        .upload = true,
                                        .after = text.last_use});
      text.arriving[half] = text.last_use;
    }
    kept_.emplace_back(std::move(text.host), text.last_use);
    text.place = Place::device;
  }
  /// Memory of the host that was copied from serves something else.
  void forget() {
    const auto at = kept_.begin() + static_cast<std::ptrdiff_t>(random_() % kept_.size());
    transfers_.wait_for(at->second);
    at->first->fill(-2);
    kept_.erase(at);
  }
  void look(Text& text) {
    transfers_.wait_for(text.last_use);
    wrong += !std::all_of(text.host->begin(), text.host->end(), [&](int x) { return x == text.value; });
  }

  std::mt19937 random_;
  cuda::StreamOwner main_;
  cuda::Transfers transfers_{main_.get()};
  std::array<Memory, 5> pool_{};
  std::array<bool, 5> taken_{};
  std::array<int, 5> uses_{};  // that are still to come
  std::array<Text, 4> texts_;
  std::vector<std::pair<std::shared_ptr<Memory>, TransferId>> kept_;  // copied from until then
  int last_value_ = 0;
};

TEST_CASE("transfers: what is followed is there, and memory that is given back is done with", "[transfers]") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    World world(seed);
    for (int i = 0; i < 300; ++i) world.act();
    INFO("seed " << seed);
    REQUIRE(world.wrong == 0);
    REQUIRE(world.moves > 10);
  }
}

}  // namespace
}  // namespace baton::test
