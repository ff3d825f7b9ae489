// SPDX-License-Identifier: Apache-2.0
// Shadow: finds races, reads of memory that nothing wrote, and reads of asynchronous copies that are not complete, in
// kernels on the emulator. It remembers who accessed each byte, so that a mistake is found whatever the order in which
// the threads run, and whether or not it changes a result (docs/decisions/cuda_tests.md).
//
// Kernels are compiled with -fsanitize=thread, which makes every access of theirs a call (accesses.cpp). What orders
// two accesses is what the PTX manual says: the barrier of a block orders those of its threads, the barrier of a warp
// (sync_warp) those of its lanes. Shuffles, matrix loads and products let lanes wait for one another and order nothing
// in memory. Nothing orders the blocks of a launch. Atomic operations do not conflict with one another and order
// nothing. Memory of the device is shared by launches, which streams order: that is the strict runtime's to check.
//
// Where kernels are not compiled that way (builds with another sanitizer), it does nothing. One kernel runs at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/simt/shadow_memory.h"

namespace baton::simt {

enum class Touch : std::uint8_t { read, write, atomic };

class Shadow {
 public:
  /// Whether kernels are compiled for it, and BATON_TEST_SHADOW is not "off".
  static bool is_possible();
  /// Code that is compiled for it calls this when the program begins.
  static void enable() { is_enabled_ = true; }

  // Memory of devices.
  void restart();
  /// Kernels may be given memory at these addresses.
  void add_space(const void* begin, std::size_t bytes);
  /// The bytes, the first of a page, can be used from now on. Nothing has written them.
  void allocated(const void* memory, std::size_t bytes);
  /// A copy from the host, a memset or a library has written the bytes.
  void written(const void* memory, std::size_t bytes);
  void copied(const void* to, const void* from, std::size_t bytes);
  /// Returns "byte 12 of an allocation of 64 bytes" for the first of the bytes that nothing has written, or "".
  std::string unwritten(const void* memory, std::size_t bytes);

  // A launch on the emulator. Its threads' accesses are checked between begin_launch and end_launch.
  struct Launch {
    const void* kernel = nullptr;
    std::array<unsigned, 3> grid = {};
    unsigned threads = 0;
    const void* shared = nullptr;
    std::size_t shared_bytes = 0;
    std::size_t guard_bytes = 0;  // behind the shared memory, which nobody may touch
  };
  void begin_launch(const Launch& launch);
  void end_launch();
  void begin_block();
  /// The thread runs from now on.
  void resume(std::size_t thread) { thread_ = static_cast<std::uint16_t>(thread); }
  void block_barrier();
  void warp_barrier();
  /// What the first mistake of the launch was, in words, or "".
  const std::string& report() const { return report_; }

  /// Whether accesses to the address may have to be told. Most are to the stacks of threads.
  static bool is_watched(const void* memory) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    return at - watched_[0].begin < watched_[0].bytes || at - watched_[1].begin < watched_[1].bytes;
  }
  /// An access by the running thread, or by another of its warp. `code`: where the call of it returns to.
  void access(const void* memory, std::size_t bytes, Touch touch, const void* code) {
    if (is_watching_) access_as(thread_, memory, bytes, touch, code);
  }
  void access_by_lane(int lane, const void* memory, std::size_t bytes, const void* code);
  /// An asynchronous copy by the running thread: of bytes at `from`, or of zeros where that is null.
  Stamp begin_copy(const void* to, const void* from, std::size_t bytes, const void* code);
  /// The running thread has waited for the copy with this stamp.
  void end_copy(Stamp begun, const void* to, const void* from, std::size_t bytes);

 private:
  struct Place {
    ShadowMemory* memory = nullptr;  // null: nobody watches the address
    std::size_t offset = 0;
  };
  Place find(const void* memory);
  bool is_shared(const Place& place) const { return place.memory == &shared_; }
  void access_as(std::uint16_t thread, const void* memory, std::size_t bytes, Touch touch, const void* code);
  void access_at(const void* memory, std::size_t bytes, Touch touch, const Stamp& own);
  void access_cell(Cell& cell, Touch touch, const Stamp& own, const Place& place);
  void remember(Cell& cell, const Stamp& own) const;
  bool is_before(const Stamp& stamp, const Stamp& own) const;
  int concurrency(const Stamp& stamp, const Stamp& own) const;

  std::string describe(const Place& place) const;
  std::string thread_of(const Stamp& stamp) const;
  void conflict(const Place& place, const Stamp& before, bool before_writes, const Stamp& own, bool own_writes);
  void mistake(const std::string& what);

  inline static bool is_enabled_ = false;
  struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
  };
  inline static std::array<Range, 2> watched_ = {};  // while a kernel runs: shared memory, all spaces

  std::vector<ShadowMemory> spaces_;
  std::map<std::uintptr_t, std::size_t> allocations_;
  ShadowMemory shared_;

  bool is_watching_ = false;
  Launch launch_;
  std::uint16_t thread_ = 0;
  std::string report_;
  // The clock goes on at every barrier. What happened before it reached launch_begun_ is before everything here.
  std::uint32_t now_ = 1;
  std::uint32_t launch_begun_ = 1, block_begun_ = 1, barrier_ = 1;
  std::vector<std::uint32_t> warp_barriers_;  // the newest barrier of each warp
  std::vector<std::uint32_t> blocks_;         // when each block of the launch began
};

Shadow& shadow();

}  // namespace baton::simt
