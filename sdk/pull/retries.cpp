// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/retries.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace baton {
namespace {

constexpr double kFirstPause = 0.5;  // seconds
constexpr double kMaxPause = 30;     // seconds, of those that double
constexpr double kMaxAsked = 300;    // seconds that a server may ask for

}  // namespace

void Retries::run(const std::function<void()>& attempt) {
  while (true) {
    try {
      return attempt();
    } catch (const HttpError& error) {
      if (error.kind != HttpError::Kind::transient || failures_ >= max_failures_) throw;
      if (error.wait_seconds > kMaxAsked)
        throw HttpError(HttpError::Kind::refused,
                        fmt::format("{}; it asks to wait {:.0f} s", error.what(), error.wait_seconds));
      double pause = kFirstPause;
      for (int failure = 0; failure < failures_ && pause < kMaxPause; ++failure) pause *= 2;
      pause = error.wait_seconds > 0 ? error.wait_seconds : std::min(pause, kMaxPause);
      const std::chrono::duration<double> left = deadline_ - std::chrono::steady_clock::now();
      if (left.count() < pause) throw;
      ++failures_;
      if (on_note_)
        on_note_(fmt::format("{}; again in {:.1f} s ({} of {})", error.what(), pause, failures_, max_failures_));
      wait(std::chrono::duration<double>(pause));
    }
  }
}

void Retries::wait(std::chrono::duration<double> seconds) const {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop_, seconds, [] { return false; });
  if (stop_.stop_requested()) throw HttpError(HttpError::Kind::stopped, "stopped");
}

}  // namespace baton
