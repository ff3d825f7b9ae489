// SPDX-License-Identifier: Apache-2.0
// The inside of the strict runtime: what an entry point needs (strict.h). One lock guards everything here.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/strict/strict.h"

namespace baton::test::strict {

/// What has happened before: for each stream, the number of its newest piece of work.
class Clock {
 public:
  std::uint64_t operator[](int stream) const {
    return static_cast<std::size_t>(stream) < at_.size() ? at_[static_cast<std::size_t>(stream)] : 0;
  }
  void reach(int stream, std::uint64_t number) {
    if (at_.size() <= static_cast<std::size_t>(stream)) at_.resize(static_cast<std::size_t>(stream) + 1);
    at_[static_cast<std::size_t>(stream)] = std::max(at_[static_cast<std::size_t>(stream)], number);
  }
  void join(const Clock& other) {
    for (std::size_t i = 0; i < other.at_.size(); ++i) reach(static_cast<int>(i), other.at_[i]);
  }
  std::size_t size() const { return at_.size(); }

 private:
  std::vector<std::uint64_t> at_;
};

/// A piece of work of a stream.
struct Work {
  const char* name = "";
  int stream = 0;
  std::uint64_t number = 0;  // within its stream, from 1
  Clock before;              // what it runs behind, itself included
  std::function<void(const Work&)> run;
  double microseconds = 1;
  std::shared_ptr<double> ends;  // when it ended, in microseconds; for events
};

}  // namespace baton::test::strict

struct CUstream_st {
  int id = 0;
  int device = 0;
  bool legacy = false;
  baton::test::strict::Clock clock;
  std::uint64_t last = 0;  // the newest work's number
  std::deque<baton::test::strict::Work> queue;
  double time = 0;  // when its last work ended
  CUgraph_st* capture = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  const void* capturing_thread = nullptr;
  bool invalidated = false;
};
struct CUevent_st {
  int device = 0;
  bool timed = true;
  bool recorded = false;
  bool captured = false;
  baton::test::strict::Clock clock;
  int stream = 0;
  std::uint64_t number = 0;
  std::shared_ptr<double> ends;
};
struct CUgraph_st {
  std::vector<baton::test::strict::Work> work;
};
struct CUgraphExec_st {
  int device = 0;
  std::shared_ptr<const std::vector<baton::test::strict::Work>> work;
};
struct CUmemPoolHandle_st {
  int device = 0;
  std::uint64_t threshold = 0;
  std::uint64_t reserved = 0, used = 0;
};

namespace baton::test::strict {

struct Device {
  DeviceSpec spec;
  CUmemPoolHandle_st pool;
  CUstream_st legacy;
  std::size_t used = 0;                     // by cudaMalloc
  std::map<const void*, int> shared_bytes;  // that kernels may use at a launch
};

/// State of a thread that calls.
struct Caller {
  int device = 0;
  bool selected = false;
  cudaError_t last_error = cudaSuccess;
};
Caller& caller();

struct Core {
  std::recursive_mutex mutex;
  Setup setup;
  std::deque<Device> devices;
  std::vector<CUstream_st*> streams;  // by id; null: destroyed
  std::vector<std::uint64_t> done;    // by id: the newest work that ran
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  Clock host;  // what some host thread has waited for: threads order themselves by other means
  double host_time = 0;
  std::mt19937 random;

  std::vector<std::string> reports;
  std::map<std::string, std::uint64_t> calls;
  std::uint64_t call_count = 0;
  std::uint64_t all_calls = 0;  // of the process; restart() leaves it
  bool recording = false;
  std::vector<Site> sites;
  std::uint64_t fail_at = 0;
  int fail_with = 0;
  bool fail_sticky = false;
  cudaError_t sticky = cudaSuccess;
  std::string failed;
  std::map<int, std::uint64_t> algorithms;
  int without_captures = 0;
  int library_objects = 0;  // of cuBLASLt, that were not destroyed
};
Core& core();

void report(std::string what);

// memory.cpp
enum class Access : std::uint8_t { read, write };
void restart_memory();
std::vector<std::string> memory_leaks();
/// Returns memory of the device, or null when it is short.
void* allocate_device(int device, std::size_t bytes, CUstream_st* stream);
/// Returns false when nothing was allocated there, or it was released before.
bool release_device(void* pointer, CUstream_st* stream);
void* allocate_pinned(std::size_t bytes);
bool release_pinned(void* pointer);
/// The device of an address, or -1.
int device_of(const void* pointer);
/// True when the bytes lie in one piece of pinned memory.
bool is_pinned(const void* pointer, std::size_t bytes);
/// Checks that the bytes lie in one allocation of a device, now.
bool is_allocated(const void* pointer, std::size_t bytes);
/// Checks an access of work to device memory.
void touch(const Work& work, const void* pointer, std::size_t bytes, Access access);
/// Lets the threads of a kernel run: what they touch is checked.
void run_kernel(const Work& work, const std::function<void()>& body);
/// Device memory is open to body, which is known to touch only what was checked.
void with_open_memory(const void* pointer, std::size_t bytes, const std::function<void()>& body);
/// Notes that a copy, the next work of the stream, reads or writes pinned memory until it has run. Returns true when
/// copies in progress write it, or read what this one will write.
bool begin_pinned_use(const void* pointer, std::size_t bytes, bool read, const CUstream_st& stream);

// streams.cpp
CUstream_st* stream_of(cudaStream_t stream);  // the legacy stream for null; null when it does not exist
/// Queues work, or adds it to the capture of the stream.
void give(CUstream_st* stream, const char* name, double microseconds, std::function<void(const Work&)> run,
          std::shared_ptr<double> ends = nullptr);
/// Runs everything that happened before, and lets the host know it.
void wait_for(const Clock& clock);
void run_some();

/// The frame of an entry point: locks, counts, fails where a test wants it to, and keeps the last error.
class Call {
 public:
  enum Kind : std::uint8_t {
    plain,         // needs no device
    of_device,     // works on the device that the thread has selected
    not_captured,  // of_device, and unsafe while the thread captures
  };
  Call(const char* name, Kind kind, std::vector<int> errors);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// True when the call must end with error() at once.
  bool fails() const { return fails_; }
  int error() const { return error_; }
  cudaError_t end(cudaError_t code);

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  bool fails_ = false;
  int error_ = 0;
};

/// Runs the body of an entry point of the runtime.
template <class Body>
cudaError_t called(const char* name, Call::Kind kind, std::vector<int> errors, const Body& body) {
  Call call(name, kind, std::move(errors));
  if (call.fails()) return call.end(static_cast<cudaError_t>(call.error()));
  const cudaError_t code = body();
  return call.end(core().sticky != cudaSuccess ? core().sticky : code);
}

/// The same for calls that destroy something: they do it even when they return an error, as after a failed kernel.
/// `undo` takes back what a call that must fail has given.
template <class Body, class Undo>
cudaError_t released(const char* name, Call::Kind kind, std::vector<int> errors, const Body& body, const Undo& undo) {
  Call call(name, kind, std::move(errors));
  const cudaError_t code = body();
  if (!call.fails()) return call.end(core().sticky != cudaSuccess ? core().sticky : code);
  undo();
  return call.end(static_cast<cudaError_t>(call.error()));
}
template <class Body>
cudaError_t released(const char* name, Call::Kind kind, std::vector<int> errors, const Body& body) {
  return released(name, kind, std::move(errors), body, [] {});
}

}  // namespace baton::test::strict
