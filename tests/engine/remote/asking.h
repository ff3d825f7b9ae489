// SPDX-License-Identifier: Apache-2.0
// A request to an engine, and its result.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace baton::test {

/// Lives until the request has finished.
class AskedServer {
 public:
  AskedServer(InferenceEngine& engine, GenerationRequest request) {
    request.callbacks.on_token = [this](TokenId, const std::string& text) {
      const std::lock_guard lock(mutex_);
      pieces_.push_back(text);
      changed_.notify_all();
    };
    request.callbacks.on_prefilled = [this](const GenerationResult&) {
      const std::lock_guard lock(mutex_);
      ++prefilled_;
    };
    request.callbacks.on_finished = [this](GenerationResult result) {
      const std::lock_guard lock(mutex_);
      result_ = std::move(result);
      ++finished_;
      changed_.notify_all();
    };
    id = engine.submit(std::move(request));
  }
  ~AskedServer() { wait(); }

  const GenerationResult& wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return finished_ > 0; })) std::abort();
    return result_;
  }
  void wait_for_pieces(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return pieces_.size() >= count || finished_ > 0; });
  }
  std::vector<std::string> pieces() const {
    const std::lock_guard lock(mutex_);
    return pieces_;
  }
  int prefilled() const {
    const std::lock_guard lock(mutex_);
    return prefilled_;
  }

  RequestId id = 0;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> pieces_;
  GenerationResult result_;
  int finished_ = 0, prefilled_ = 0;
};

inline GenerationRequest asking(const InferenceEngine& engine, const std::string& text) {
  GenerationRequest request;
  request.prompt.push_back({"", engine.text().tokenizer->encode(text, SpecialTokens::recognise)});
  request.reuse.method = &lockstep_method();
  return request;
}

}  // namespace baton::test
