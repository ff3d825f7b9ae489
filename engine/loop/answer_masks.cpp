// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/answer_masks.h"

#include <algorithm>

#include "engine/base/errors.h"

namespace baton {
namespace {

constexpr std::size_t kMaxKnown = 8;  // each has a cache of up to 16 MiB

}  // namespace

std::shared_ptr<const MaskVocabulary> AnswerMasks::vocabulary(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  read_.wait(lock, stop, [&] { return !reading_; });
  if (vocabulary_ != nullptr) return vocabulary_;
  if (stop.stop_requested()) throw Interrupted();
  reading_ = true;
  lock.unlock();
  std::shared_ptr<const MaskVocabulary> made;
  const auto end = [&] {
    lock.lock();
    reading_ = false;
    vocabulary_ = made;
    read_.notify_all();
  };
  try {
    made = std::make_shared<const MaskVocabulary>(*model_.tokenizer, model_.config.vocabulary, model_.config.eos_tokens,
                                                  stop);
  } catch (...) {
    end();
    throw;
  }
  end();
  return made;
}

std::shared_ptr<TokenMasks> AnswerMasks::of(const std::shared_ptr<const Grammar>& constraint) {
  if (constraint == nullptr) return nullptr;
  const std::shared_ptr<const MaskVocabulary> all = vocabulary();
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.constraint == constraint; });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    return known_.front().masks;
  }
  known_.push_front({constraint, std::make_shared<TokenMasks>(constraint, all)});
  if (known_.size() > kMaxKnown) known_.pop_back();
  return known_.front().masks;
}

}  // namespace baton
