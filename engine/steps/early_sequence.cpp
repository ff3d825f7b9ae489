// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/early_sequence.h"

#include <algorithm>

namespace baton {
namespace {

const std::vector<TokenId>* none(RequestId) { return nullptr; }

/// Drops the parts from the first one on that the request will rectify.
void keep_exact(EarlyPrompt& prompt) {
  if (!takes_segments(prompt.reuse) || prompt.reuse.method->exact) return;
  const auto rectified = std::find_if(prompt.parts.begin(), prompt.parts.end(), [&](const EarlyPart& part) {
    return part.handed_over &&
           (part.follows != 0 || static_cast<std::int32_t>(part.tokens.size()) >= prompt.reuse.min_tokens);
  });
  if (rectified == prompt.parts.end()) return;
  prompt.parts.erase(rectified, prompt.parts.end());
  prompt.complete = false;
}

}  // namespace

EarlySequence::EarlySequence(EarlyId id, EarlyPrompt prompt) : id_(id), prompt_(std::move(prompt)) {
  keep_exact(prompt_);
  refresh(none);
  whole_ = settled();
}

void EarlySequence::update(std::vector<EarlyPart> parts, bool complete) {
  for (EarlyPart& part : parts) {  // the caller may not know yet that this request has ended
    const auto over = ended_.find(part.follows);
    if (over == ended_.end()) continue;
    part.tokens = over->second;
    part.follows = 0;
  }
  // A part that still follows the same request keeps its tokens; refresh() asks for further ones later.
  const std::vector<TokenId> before = known_;
  prompt_.parts.swap(parts);
  prompt_.complete = complete;
  keep_exact(prompt_);
  const std::size_t same_parts =
      static_cast<std::size_t>(std::mismatch(prompt_.parts.begin(), prompt_.parts.end(), parts.begin(), parts.end(),
                                             [](const EarlyPart& a, const EarlyPart& b) {
                                               return a.follows == b.follows && a.tokens == b.tokens;
                                             })
                                   .first -
                               prompt_.parts.begin());
  if (part_ < same_parts || (part_ == same_parts && part_ == prompt_.parts.size())) {
    refresh(none);
    return;
  }
  known_.clear();
  part_ = part_begin_ = 0;
  refresh(none);
  const auto common = static_cast<std::size_t>(
      std::mismatch(known_.begin(), known_.end(), before.begin(), before.end()).first - known_.begin());
  const std::vector<TokenId> now = known_;
  if (common == before.size() && common == now.size()) return;
  keep_first(common);
  known_ = now;
}

void EarlySequence::refresh(const DecodedTokens& decoded) {
  const auto room = static_cast<std::size_t>(prompt_.longest);
  while (part_ < prompt_.parts.size()) {
    const EarlyPart& part = prompt_.parts[part_];
    const std::vector<TokenId>* tokens = part.follows == 0 ? &part.tokens : decoded(part.follows);
    if (tokens != nullptr) {
      const std::size_t taken = known_.size() - part_begin_;
      const std::size_t more = std::min(tokens->size() - taken, room - known_.size());
      const auto first = tokens->begin() + static_cast<std::ptrdiff_t>(taken);
      known_.insert(known_.end(), first, first + static_cast<std::ptrdiff_t>(more));
    }
    if (part.follows != 0 || known_.size() - part_begin_ < part.tokens.size()) return;
    ++part_;
    part_begin_ = known_.size();
  }
}

void EarlySequence::ended(RequestId id, const std::vector<TokenId>* tokens) {
  for (std::size_t i = 0; i < prompt_.parts.size(); ++i) {
    EarlyPart& part = prompt_.parts[i];
    if (part.follows != id) continue;
    part.follows = 0;
    if (tokens != nullptr) part.tokens = ended_[id] = *tokens;
    if (i == part_) {  // tokens that a stop string cut off were followed, too
      keep_first(part_begin_ + std::min(known_.size() - part_begin_, part.tokens.size()));
    }
    if (tokens != nullptr) continue;
    prompt_.parts.resize(i);
    prompt_.complete = false;
    break;
  }
  refresh(none);
}

void EarlySequence::keep_first(std::size_t count) {
  known_.resize(count);
  logits_.clear();
  done_ = std::min(done_, static_cast<std::int32_t>(count));
  placed_ = std::min(placed_, done_);
  ahead_ = std::min(ahead_, done_);
  if (cache_) cache_->truncate(done_);
}

void EarlySequence::start(KvCache cache, std::int32_t placed) {
  cache_.emplace(std::move(cache));
  cache_->commit(placed);
  placed_ = ahead_ = done_ = placed;
}

LivePrefix EarlySequence::live() const {
  if (!cache_ || !cache_->layout().raw_keys || (prompt_.context && prompt_.context->foreign)) return {};
  return {id_, &*cache_, known_, done_, static_cast<std::int32_t>(known_.size())};
}

bool EarlySequence::add_rows(std::int32_t count, StepRows& step) {
  const std::int32_t cache = step.add_cache(&*cache_);
  for (std::int32_t at = done_; at < done_ + count; ++at) {
    step.add_row(cache, at, known_[static_cast<std::size_t>(at)]);
    step.path.push_back({0, cache_->layout().layers, -1});
  }
  return settled() && count == backlog();
}

void EarlySequence::commit(std::int32_t count, std::span<const float> logits) {
  done_ += count;
  if (!submitted_ && (whole_ || !settled())) ahead_ = done_;
  cache_->commit(done_);
  logits_.assign(logits.begin(), logits.end());
}

std::optional<EarlySequence::Taken> EarlySequence::take(std::span<const TokenId> prompt, std::int32_t positions,
                                                        const KvLayout& layout) {
  if (!cache_ || cache_->capacity() < positions || !(cache_->layout() == layout)) return std::nullopt;
  const auto run = std::span(known_).first(static_cast<std::size_t>(done_));
  const auto common =
      static_cast<std::size_t>(std::mismatch(run.begin(), run.end(), prompt.begin(), prompt.end()).first - run.begin());
  const bool whole = common == prompt.size() && common == known_.size() && !logits_.empty();
  if (!whole) logits_.clear();
  const auto length = static_cast<std::int32_t>(whole ? common : std::min(common, prompt.size() - 1));
  if (length == 0) return std::nullopt;
  cache_->truncate(length);
  return Taken{std::move(*cache_), std::min(placed_, length), std::min(ahead_, length), length, std::move(logits_)};
}

}  // namespace baton
