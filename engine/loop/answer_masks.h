// SPDX-License-Identifier: Apache-2.0
// AnswerMasks: the token masks of the constraints that requests have, shared by requests with the same constraint.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>

#include "engine/model/model.h"
#include "engine/text/constrain/token_masks.h"

namespace baton {

class AnswerMasks {
 public:
  explicit AnswerMasks(const Model& model) : model_(model) {}

  /// Reads the vocabulary, once for all threads: takes about a tenth of a second. Throws as MaskVocabulary does; the
  /// next call begins anew then. From any thread.
  std::shared_ptr<const MaskVocabulary> vocabulary(const std::stop_token& stop = {});

  /// From any thread. Only the engine's thread may use the result. Null for null. Throws as `vocabulary`, unless that
  /// has been called.
  std::shared_ptr<TokenMasks> of(const std::shared_ptr<const Grammar>& constraint);

 private:
  struct Known {
    std::shared_ptr<const Grammar> constraint;
    std::shared_ptr<TokenMasks> masks;
  };

  const Model& model_;
  std::mutex mutex_;  // not held while the vocabulary is read
  std::condition_variable_any read_;
  bool reading_ = false;                              // guarded by mutex_: one thread reads the vocabulary
  std::shared_ptr<const MaskVocabulary> vocabulary_;  // guarded by mutex_; null until a request has a constraint
  std::list<Known> known_;                            // guarded by mutex_; the latest first
};

}  // namespace baton
