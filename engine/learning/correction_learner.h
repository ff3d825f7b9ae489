// SPDX-License-Identifier: Apache-2.0
// CorrectionLearner: collects, for each place of a model's prompts, the change of the texts' KV, and fits the linear
// corrections.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/reuse/anchors/anchor_store.h"
#include "engine/reuse/corrections/linear_fit.h"

namespace baton {

struct LearnedPlace {
  AnchorKey key;
  std::set<std::string> readers;  // the turns whose prompts hold the place
  std::int32_t texts = 0;
  std::int64_t tokens = 0;
  std::shared_ptr<const LinearCorrection> correction;  // null: too few texts
};

/// All members are safe from any thread.
class CorrectionLearner {
 public:
  explicit CorrectionLearner(const LinearFitOptions& options = {}) : options_(options) {}

  /// Adds a sample if its text is an answer: the change of other texts hardly affects their readers.
  void add(const AnchorSample& sample);

  /// Fits and returns all places, in the order in which they were first seen. on_progress gets the fraction done, 0 to
  /// 1. Ends early when stopped.
  std::vector<LearnedPlace> fit(const std::function<void(double)>& on_progress, const std::stop_token& stop) const;

 private:
  LinearFitOptions options_;
  mutable std::mutex mutex_;
  struct Place {
    AnchorKey key;
    std::set<std::string> readers;
    LinearFit fit;
  };
  std::vector<Place> places_;
};

}  // namespace baton
