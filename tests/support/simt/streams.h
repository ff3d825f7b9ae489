// SPDX-License-Identifier: Apache-2.0
// Streams as a device has them, without one: a queue of work each, run by whoever waits, in a random order that keeps
// the order within a stream and behind events. It proves that what must wait does wait; it proves nothing about time.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace baton::test {

using Reached = std::shared_ptr<bool>;

struct SimulatedEvent {
  Reached reached;  // of the newest record; null: never recorded
};

struct SimulatedStream {
  struct Work {
    std::function<void()> run;
    Reached behind;   // runs when this is reached; null: at once
    Reached reaches;  // becomes true with it
  };
  std::deque<Work> queue;
};

/// How soon work runs: hardly ever before somebody waits, or some of it with each call.
enum class Eagerness : std::uint8_t { late, some };

/// One caller at a time.
class Streams {
 public:
  void restart(std::uint32_t seed, Eagerness eagerness);
  void give(SimulatedStream& stream, SimulatedStream::Work work);
  /// Runs until then. Aborts when nothing can run and it is not.
  void run_until(const std::function<bool()>& then);

  std::vector<SimulatedStream*> all;
  std::function<void(void* memory)> on_free;  // memory that was given back has had its last use

 private:
  bool run_one();

  std::mt19937 random_{1};
  Eagerness eagerness_ = Eagerness::late;
};

Streams& streams();

}  // namespace baton::test
