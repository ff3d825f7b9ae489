// SPDX-License-Identifier: Apache-2.0
// EngineLoop: what an engine's thread does: takes what has come in, begins requests, runs steps. Nothing that a request
// or a shortage of memory causes ends the thread (docs/decisions/memory.md).
#pragma once

#include "engine/loop/admission.h"
#include "engine/loop/inbox.h"
#include "engine/loop/request_end.h"
#include "engine/loop/step_runner.h"

namespace baton {

class EngineLoop {
 public:
  explicit EngineLoop(EngineParts& parts)
      : parts_(parts), end_(parts), runner_(parts, end_), admission_(parts, end_, runner_) {}

  /// Runs until the inbox is closed. Open requests then finish as cancelled, and all KV is freed.
  void run() noexcept;

 private:
  bool wait_for_work();
  void apply_cancels();
  void recover(const char* error) noexcept;

  EngineParts& parts_;
  RequestEnd end_;
  StepRunner runner_;
  Admission admission_;
};

}  // namespace baton
