// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/correction_learner.h"

#include <algorithm>

namespace baton {

void CorrectionLearner::add(const AnchorSample& sample) {
  if (!sample.generated) return;
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& one) { return one.key == sample.key; });
  if (found == places_.end()) {
    places_.push_back({sample.key, {}, LinearFit(sample.shape, options_)});
    found = std::prev(places_.end());
  }
  found->readers.insert(sample.reader);
  found->fit.add(sample.base, sample.truth, sample.length);
}

std::vector<LearnedPlace> CorrectionLearner::fit(const std::function<void(double)>& on_progress,
                                                 const std::stop_token& stop) const {
  const std::lock_guard lock(mutex_);
  std::vector<LearnedPlace> learned;
  for (const Place& place : places_) {
    if (stop.stop_requested()) break;
    learned.push_back({place.key, place.readers, place.fit.texts(), place.fit.tokens(), place.fit.fit()});
    if (on_progress) on_progress(static_cast<double>(learned.size()) / static_cast<double>(places_.size()));
  }
  return learned;
}

}  // namespace baton
