// SPDX-License-Identifier: Apache-2.0
#include "tests/support/strict/core.h"

#include <fmt/format.h>

namespace baton::test::strict {

Core& core() {
  static Core* one = new Core;  // threads of a test may still call while the process ends
  return *one;
}

Caller& caller() {
  thread_local Caller one;
  return one;
}

namespace {

/// Says once what is there at the beginning.
const bool kBegun = [] {
  restart();
  return true;
}();

bool captures(const CUstream_st& stream) {
  return stream.capture != nullptr &&
         (stream.mode == cudaStreamCaptureModeGlobal ||
          (stream.mode == cudaStreamCaptureModeThreadLocal && stream.capturing_thread == &caller()));
}

/// Invalidates the captures that an unsafe call of this thread breaks.
bool break_captures() {
  bool broke = false;
  for (CUstream_st* stream : core().streams) {
    if (stream == nullptr || !captures(*stream)) continue;
    stream->invalidated = true;
    broke = true;
  }
  return broke;
}

}  // namespace

void report(std::string what) {
  if (core().sticky != cudaSuccess) return;  // nothing can be done in order any more
  std::vector<std::string>& all = core().reports;
  if (all.size() < 100 && std::find(all.begin(), all.end(), what) == all.end()) all.push_back(std::move(what));
}

Call::Call(const char* name, Kind kind, std::vector<int> errors) : lock_(core().mutex) {
  Core& c = core();
  ++c.calls[name];
  ++c.call_count;
  ++c.all_calls;
  c.host_time += 1;
  if (c.recording) c.sites.push_back({name, errors});
  if (c.fail_at == c.call_count) {
    c.failed = name;
    if (c.fail_sticky) c.sticky = static_cast<cudaError_t>(c.fail_with);
    fails_ = true;
    error_ = c.fail_with;
    return;
  }
  if (c.sticky != cudaSuccess) {
    fails_ = true;
    error_ = c.sticky;
    return;
  }
  if (kind == plain) return;
  if (!caller().selected) {
    report(fmt::format("{}: the thread has not selected a device, so that the call uses the first", name));
    caller().selected = true;
  }
  if (kind == not_captured && break_captures()) {
    fails_ = true;
    error_ = cudaErrorStreamCaptureUnsupported;
  }
}

cudaError_t Call::end(cudaError_t code) {
  if (code != cudaSuccess) caller().last_error = code;
  return code;
}

void restart(const Setup& setup) {
  Core& c = core();
  const std::lock_guard lock(c.mutex);
  for (std::string& leak : take_reports_and_leaks()) std::fprintf(stderr, "strict runtime: %s\n", leak.c_str());
  c.setup = setup;
  c.devices.clear();
  c.streams.clear();
  c.done.clear();
  for (std::size_t i = 0; i < setup.devices.size(); ++i) {
    Device& device = c.devices.emplace_back();
    device.spec = setup.devices[i];
    device.pool.device = device.legacy.device = static_cast<int>(i);
    device.legacy.legacy = true;
    device.legacy.id = static_cast<int>(c.streams.size());
    c.streams.push_back(&device.legacy);
    c.done.push_back(0);
  }
  for (CUevent_st* event : c.events) delete event;
  for (CUgraph_st* graph : c.graphs) delete graph;
  for (CUgraphExec_st* executable : c.executables) delete executable;
  c.events.clear();
  c.graphs.clear();
  c.executables.clear();
  c.host = {};
  c.host_time = 0;
  c.random.seed(setup.seed);
  c.reports.clear();
  c.calls.clear();
  c.call_count = 0;
  c.recording = false;
  c.sites.clear();
  c.fail_at = 0;
  c.sticky = cudaSuccess;
  c.failed.clear();
  c.library_objects = 0;
  c.algorithms.clear();
  caller() = {};
  restart_memory();
}

std::vector<std::string> take_reports() {
  const std::lock_guard lock(core().mutex);
  return std::exchange(core().reports, {});
}

std::vector<std::string> take_reports_and_leaks() {
  Core& c = core();
  const std::lock_guard lock(c.mutex);
  for (std::string& leak : memory_leaks()) c.reports.push_back(std::move(leak));
  const auto left = [&c](std::size_t count, const char* what) {
    if (count > 0) c.reports.push_back(fmt::format("{} {} never destroyed", count, what));
  };
  left(static_cast<std::size_t>(std::count_if(c.streams.begin(), c.streams.end(),
                                              [](const CUstream_st* one) { return one != nullptr && !one->legacy; })),
       "streams were");
  left(c.events.size(), "events were");
  left(c.graphs.size(), "graphs were");
  left(c.executables.size(), "executable graphs were");
  left(static_cast<std::size_t>(c.library_objects), "objects of cuBLASLt were");
  return std::exchange(c.reports, {});
}

const std::map<std::string, std::uint64_t>& calls() { return core().calls; }
std::uint64_t call_count() { return core().call_count; }
std::uint64_t all_calls() { return core().all_calls; }
void record_sites(bool on) {
  if (on) core().sites.clear();
  core().recording = on;
}
void set_memory(int device, std::size_t bytes) {
  core().devices.at(static_cast<std::size_t>(device)).spec.memory = bytes;
}
const std::vector<Site>& sites() { return core().sites; }
const std::string& failed_call() { return core().failed; }
const std::map<int, std::uint64_t>& algorithms() { return core().algorithms; }

WithoutCaptures::WithoutCaptures() { ++core().without_captures; }
WithoutCaptures::~WithoutCaptures() { --core().without_captures; }

void fail_call(std::uint64_t number, int error, bool sticky) {
  core().fail_at = number;
  core().fail_with = error;
  core().fail_sticky = sticky;
}

}  // namespace baton::test::strict
