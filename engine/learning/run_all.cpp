// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/run_all.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace baton {
namespace {

/// Shared with the callbacks, which run on the engine's thread.
struct Batch {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<GenerationResult> results;
  std::vector<RequestId> ids;  // the calling thread's
  std::size_t finished = 0;
  std::int64_t decoded = 0;  // tokens of those that are not finished, and of those that are
  std::int64_t most = 0;     // tokens that all may decode

  double share() const {
    const auto all = static_cast<double>(results.size());
    const double tokens = most > 0 ? static_cast<double>(decoded) / static_cast<double>(most) : 0.0;
    return std::max(static_cast<double>(finished) / all, 0.95 * std::min(1.0, tokens));
  }
};

void submit(InferenceEngine& engine, const std::shared_ptr<Batch>& batch, std::size_t index,
            GenerationRequest request) {
  request.callbacks.on_token = [batch](TokenId, const std::string&) {
    const std::lock_guard lock(batch->mutex);
    ++batch->decoded;
    batch->changed.notify_all();
  };
  request.callbacks.on_finished = [batch, index,
                                   own = std::move(request.callbacks.on_finished)](GenerationResult result) {
    try {
      if (own) own(result);
    } catch (const std::exception& error) {
      result.reason = FinishReason::error;
      result.error = error.what();
    }
    const std::lock_guard lock(batch->mutex);
    batch->results[index] = std::move(result);
    ++batch->finished;
    batch->changed.notify_all();
  };
  batch->ids.push_back(engine.submit(std::move(request)));
}

}  // namespace

std::optional<std::vector<GenerationResult>> run_all(InferenceEngine& engine, std::vector<GenerationRequest> requests,
                                                     const std::stop_token& stop, const BatchProgress& progress) {
  const auto batch = std::make_shared<Batch>();
  batch->results.resize(requests.size());
  for (const auto& request : requests) batch->most += request.max_tokens;
  std::exception_ptr thrown;
  bool stopped = false;
  try {
    for (std::size_t i = 0; i < requests.size(); ++i) submit(engine, batch, i, std::move(requests[i]));
    for (double shown = 0.0; !stopped;) {
      {
        std::unique_lock lock(batch->mutex);
        const auto news = [&] { return batch->finished == batch->results.size() || batch->share() > shown; };
        stopped = !batch->changed.wait(lock, stop, news) || stop.stop_requested();
        if (batch->finished == batch->results.size()) break;
        shown = batch->share();
      }
      if (progress && !stopped) progress(shown);
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown || stopped) {
    for (const RequestId id : batch->ids) engine.cancel(id);
  }
  std::unique_lock lock(batch->mutex);
  batch->changed.wait(lock,
                      [&] { return batch->finished == batch->ids.size(); });  // callbacks use what the caller owns
  if (thrown) std::rethrow_exception(thrown);
  if (stopped) return std::nullopt;
  for (const GenerationResult& result : batch->results) {
    if (result.reason == FinishReason::error) throw EngineError(EngineError::Kind::invalid, result.error);
  }
  return std::move(batch->results);
}

}  // namespace baton
