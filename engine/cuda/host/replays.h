// SPDX-License-Identifier: Apache-2.0
// Replays: engine steps that repeat, kept as CUDA graphs. The launches of a step are first written to a log, without
// launching. A step whose log has occurred before is captured, and from then on replayed. So the host only checks and
// compares in a decode step, and the device runs it without gaps. A replay is exact: every kernel, grid, address and
// number in it equals that of the current step (docs/decisions/cuda.md).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/host/types.h"

namespace baton::cuda {

class Replays {
 public:
  Replays(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// Runs `work`, which must launch only through stream() and multiply(), and upload only through the staging. May call
  /// `work` several times. Throws BackendError.
  void run(const std::function<void()>& work);

  /// Returns the stream or log that launches must use now.
  Stream stream();
  void multiply(const Product& product);
  /// True while work is logged or captured: nothing can be copied to the host then.
  bool deferred() const { return logging_ || capturing_; }

 private:
  struct Known {
    std::vector<std::byte> log;
    std::unique_ptr<Graph> graph;  // null: the log has occurred, but is not captured
    bool fixed = true;             // false: it uploads data every time, or its capture failed
  };
  bool is_logged(const Known& known) const;
  void log_launches(const std::function<void()>& work);
  std::unique_ptr<Graph> capture(const std::function<void()>& work);

  Runtime& runtime_;
  Staging& staging_;
  LaunchLog log_;
  bool logging_ = false;
  bool capturing_ = false;
  std::list<Known> known_;  // the most recently used first
};

}  // namespace baton::cuda
