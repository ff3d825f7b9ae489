// SPDX-License-Identifier: Apache-2.0
// The renderer's guard of the thread's stack.
#pragma once

#include "engine/text/jinja/renderer.h"

namespace baton::jinja {

/// Counts the statements and expressions that are under way inside each other, those of macros included. Throws Fault
/// when there are too many.
class Renderer::Deeper {
 public:
  explicit Deeper(int& depth);
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  // A level takes up to 700 bytes of stack, and a thread has 512 KiB at least. Published templates stay below 60.
  static constexpr int kMaxDepth = 500;

  int& depth_;
};

}  // namespace baton::jinja
