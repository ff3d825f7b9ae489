// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/answer_masks.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::size_t kMaxKnown = 8;  // each has a cache of up to 16 MiB

}  // namespace

std::shared_ptr<TokenMasks> AnswerMasks::of(const std::shared_ptr<const Grammar>& constraint) {
  if (constraint == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.constraint == constraint; });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    return known_.front().masks;
  }
  if (vocabulary_ == nullptr)
    vocabulary_ =
        std::make_shared<const MaskVocabulary>(*model_.tokenizer, model_.config.vocabulary, model_.config.eos_tokens);
  known_.push_front({constraint, std::make_shared<TokenMasks>(constraint, vocabulary_)});
  if (known_.size() > kMaxKnown) known_.pop_back();
  return known_.front().masks;
}

}  // namespace baton
