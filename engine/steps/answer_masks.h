// SPDX-License-Identifier: Apache-2.0
// AnswerMasks: the token masks of the constraints that requests have, shared by requests with the same constraint.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "engine/model/model.h"
#include "engine/text/constrain/token_masks.h"

namespace baton {

class AnswerMasks {
 public:
  explicit AnswerMasks(const Model& model) : model_(model) {}

  /// From any thread. The first call reads the whole vocabulary, which takes about a tenth of a second. Only the
  /// engine's thread may use the result. Null for null.
  std::shared_ptr<TokenMasks> of(const std::shared_ptr<const Grammar>& constraint);

 private:
  struct Known {
    std::shared_ptr<const Grammar> constraint;
    std::shared_ptr<TokenMasks> masks;
  };

  const Model& model_;
  std::mutex mutex_;
  std::shared_ptr<const MaskVocabulary> vocabulary_;  // guarded by mutex_; null until a request has a constraint
  std::list<Known> known_;                            // guarded by mutex_; the latest first
};

}  // namespace baton
