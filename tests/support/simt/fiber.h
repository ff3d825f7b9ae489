// SPDX-License-Identifier: Apache-2.0
// A fiber: a stack of its own that is switched to and from. For the emulator of tests only.
#pragma once

#include <cstddef>

namespace baton::simt {

/// Runs `entry` on its own stack when first resumed. `entry` must end in a switch away that never returns.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next resume() start `entry` from the top; what was on the stack is forgotten.
  void prepare(void (*entry)());
  /// Called by the host: runs the fiber until it yields.
  void resume();
  /// Called on the fiber: goes back to the host.
  void yield();
  /// Called first on the fiber.
  void entered();

 private:
  static constexpr std::size_t kStackBytes = std::size_t{1} << 18;
  void* stack_ = nullptr;       // lowest address
  void* own_ = nullptr;         // stack pointer or context of the fiber
  void* host_ = nullptr;        // the same of the host while the fiber runs
  void* host_stack_ = nullptr;  // for the address sanitizer
  std::size_t host_bytes_ = 0;
};

}  // namespace baton::simt
