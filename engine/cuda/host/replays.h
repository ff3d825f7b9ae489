// SPDX-License-Identifier: Apache-2.0
// Steps that come again, kept as graphs. What a step would launch is written down first, without launching; when a step
// of the same log has run before, it is captured, and from then on replayed. So the host's part of a decode step is
// checking and comparing, and the device runs it without gaps. A replay is never a guess: every kernel, grid, address
// and number of it is compared with what this very step asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "engine/cuda/host/launch_log.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"

namespace baton::cuda {

class Replays {
 public:
  Replays(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// Runs `work`, which launches through stream() and multiply() and sends through the staging alone.
  void run(const std::function<void()>& work);

  /// What launches are to use now.
  Stream stream();
  void multiply(const Product& product);
  /// Work is written down or captured: nothing can come back to the host.
  bool deferred() const { return logging_ || capturing_; }

 private:
  struct Known {
    std::vector<std::byte> log;
    std::unique_ptr<Graph> graph;  // null: seen, and not captured
    bool fixed = true;             // false: it sends something in its midst, or its capture failed
  };
  bool is_logged(const Known& known) const;
  void write_down(const std::function<void()>& work);
  std::unique_ptr<Graph> capture(const std::function<void()>& work);

  Runtime& runtime_;
  Staging& staging_;
  LaunchLog log_;
  bool logging_ = false;
  bool capturing_ = false;
  std::list<Known> known_;  // the latest first
};

}  // namespace baton::cuda
