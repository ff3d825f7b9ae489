// SPDX-License-Identifier: Apache-2.0
// The strict CUDA runtime: the entry points of the CUDA runtime and of cuBLASLt that the backend calls, without a GPU.
// The real host code (engine/cuda/host, device_runtime.cpp too) runs over it, with the kernels on the emulator. It
// obeys the documented rules to the letter and reports whoever breaks one:
//
// - Work runs as late as the rules allow: when the host waits for it, or, with Lateness::some, some of it with each
//   call. What two streams do unordered runs in a random order.
// - Every access is checked by happens-before: memory used before its allocation or after its release, on whatever
//   stream, and two accesses of which one writes, that no event orders. Kernels' accesses are seen by page.
// - The host cannot touch memory of a device. Pinned memory must not change before the copies that read it.
// - Captures, devices and threads, limits of launches, objects that were destroyed or never are.
//
// It proves nothing about time (a clock of its own counts what work would roughly take) and nothing about kernels
// beyond what the emulator does. Threads: every entry point may be called by any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace baton::test::strict {

struct DeviceSpec {
  int major = 8, minor = 6;
  int multiprocessors = 2;
  // Too little for measuring products with an empty cache, which is slow here.
  std::size_t memory = std::size_t{255} << 20;
  bool pools = true;  // the driver has memory pools
  bool image = true;  // the program has kernels for it
};

enum class Lateness : std::uint8_t { late, some };

struct Setup {
  std::vector<DeviceSpec> devices = {{}};
  cudaError_t driver = cudaSuccess;  // what asking for devices says when it is not success
  int driver_version = 13000;        // 0: there is no driver
  Lateness lateness = Lateness::late;
  std::uint32_t seed = 5;
  bool runs_work = true;          // false: work is checked and takes its time, but nothing is computed
  bool marks = false;             // only recording a timed event takes time, a millisecond
  std::size_t pinned = SIZE_MAX;  // bytes of pinned memory that can be had
};

/// Forgets everything, errors and faults too, and begins again. Memory and objects that are still there are reported.
void restart(const Setup& setup = {});

/// Returns what broke a rule since the last call, in words.
std::vector<std::string> take_reports();
/// The same, with everything that was made and not destroyed.
std::vector<std::string> take_reports_and_leaks();

/// The number of calls of each entry point since restart(). Launches of kernels count as "cudaLaunchKernel".
const std::map<std::string, std::uint64_t>& calls();
std::uint64_t call_count();
/// The number of calls of the process.
std::uint64_t all_calls();

/// Other programs leave a device this much memory from now on.
void set_memory(int device, std::size_t bytes);

/// What may fail: the entry point of a call, and the errors that its documentation lists.
struct Site {
  std::string call;
  std::vector<int> errors;
};
/// Lets the call with this number (from 1, since restart()) fail with an error, and nothing else of it happen.
/// `sticky`: from then on every call returns the error, as after a kernel that touched memory it must not touch.
void fail_call(std::uint64_t number, int error, bool sticky = false);
/// The calls from record_sites(true) to record_sites(false), in order.
void record_sites(bool on);
const std::vector<Site>& sites();
/// The call that failed by fail_call, or an empty text.
const std::string& failed_call();

/// While one exists, no stream can be captured.
class WithoutCaptures {
 public:
  WithoutCaptures();
  ~WithoutCaptures();
  WithoutCaptures(const WithoutCaptures&) = delete;
  WithoutCaptures& operator=(const WithoutCaptures&) = delete;
};

/// How often products ran with each algorithm of the strict cuBLASLt.
const std::map<int, std::uint64_t>& algorithms();

}  // namespace baton::test::strict
