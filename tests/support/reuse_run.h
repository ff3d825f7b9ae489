// SPDX-License-Identifier: Apache-2.0
// One request of a test of reuse, with the logits of each of its tokens.
#pragma once

#include <algorithm>
#include <cstring>
#include <future>
#include <stdexcept>
#include <vector>

#include "engine/engine.h"
#include "engine/reuse/lab/lab_methods.h"

namespace baton::test {

/// Tests of the engine know the laboratory's methods, too.
inline const bool kHasLaboratory = (register_lab_methods(), true);

struct Run {
  GenerationResult result;
  std::vector<std::vector<float>> logits;  // of each token
};

/// Exactly the same logits and tokens.
inline bool same(const Run& a, const Run& b) {
  const auto bits = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  return a.result.tokens == b.result.tokens && std::ranges::equal(a.logits, b.logits, bits);
}

/// Waits for the answer of a request, which must not fail. For any thread: it throws instead of asserting.
inline Run run(InferenceEngine& engine, GenerationRequest request) {
  Run run;
  std::promise<GenerationResult> promise;
  request.callbacks.on_logits = [&](std::span<const float> logits) {
    run.logits.emplace_back(logits.begin(), logits.end());
  };
  request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
  engine.submit(std::move(request));
  run.result = promise.get_future().get();
  if (!run.result.error.empty()) throw std::runtime_error(run.result.error);
  return run;
}

}  // namespace baton::test
