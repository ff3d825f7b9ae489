// SPDX-License-Identifier: Apache-2.0
// Streams of the strict runtime: queues of work that run as late as the rules allow.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/support/strict/core.h"

namespace baton::test::strict {
namespace {

std::size_t index(int stream) { return static_cast<std::size_t>(stream); }

/// True when everything of other streams that the stream's next work runs behind has run.
bool is_ready(const CUstream_st& stream) {
  const Work& next = stream.queue.front();
  for (std::size_t other = 0; other < next.before.size(); ++other) {
    if (static_cast<int>(other) != stream.id && core().done[other] < next.before[static_cast<int>(other)]) return false;
  }
  return true;
}

void run(CUstream_st& stream) {
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (!core().setup.marks) stream.time = std::max(stream.time, core().host_time) + work.microseconds;
  if (core().setup.marks && work.ends != nullptr) stream.time += 1000;
  if (core().sticky == cudaSuccess) {
    try {
      if (work.run) work.run(work);
    } catch (const std::exception& error) {
      report(std::string(work.name) + ": " + error.what());
      core().sticky = cudaErrorLaunchFailure;
    }
  }
  if (work.ends) *work.ends = stream.time;
  core().done[index(stream.id)] = work.number;
}

/// Runs the next work of some stream, of those up to `limit` where it is not null. Returns false when none can run.
bool run_one(const Clock* limit) {
  std::vector<CUstream_st*> able;
  for (CUstream_st* stream : core().streams) {
    if (stream == nullptr || stream->queue.empty() || !is_ready(*stream)) continue;
    if (limit == nullptr || stream->queue.front().number <= (*limit)[stream->id]) able.push_back(stream);
  }
  if (able.empty()) return false;
  run(*able[core().random() % able.size()]);
  return true;
}

}  // namespace

CUstream_st* stream_of(cudaStream_t stream) {
  if (stream == nullptr) return &core().devices[static_cast<std::size_t>(caller().device)].legacy;
  const auto& all = core().streams;
  return std::find(all.begin(), all.end(), stream) == all.end() ? nullptr : stream;
}

void give(CUstream_st* stream, const char* name, double microseconds, std::function<void(const Work&)> run,
          std::shared_ptr<double> ends) {
  Work work{
      .name = name, .stream = stream->id, .run = std::move(run), .microseconds = microseconds, .ends = std::move(ends)};
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
    return;
  }
  work.number = ++stream->last;
  stream->clock.join(core().host);
  stream->clock.reach(stream->id, work.number);
  work.before = stream->clock;
  stream->queue.push_back(std::move(work));
  run_some();
}

void run_some() {
  if (core().setup.lateness == Lateness::late) return;
  for (std::uint32_t left = core().random() % 4; left > 0 && run_one(nullptr);) --left;
}

void wait_for(const Clock& clock) {
  Core& c = core();
  const auto is_done = [&] {
    for (std::size_t stream = 0; stream < clock.size(); ++stream) {
      if (c.done[stream] < clock[static_cast<int>(stream)]) return false;
    }
    return true;
  };
  while (!is_done()) {
    if (run_one(&clock)) continue;
    std::fprintf(stderr, "strict runtime: streams wait for one another\n");
    std::abort();
  }
  c.host.join(clock);
  for (const CUstream_st* stream : c.streams) {
    if (stream != nullptr && stream->queue.empty()) c.host_time = std::max(c.host_time, stream->time);
  }
}

}  // namespace baton::test::strict
