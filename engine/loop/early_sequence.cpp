// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/early_sequence.h"

#include <algorithm>

namespace baton {
namespace {

const std::vector<TokenId>* none(RequestId) { return nullptr; }

/// Drops the parts from the first one on that the request will rectify.
void keep_exact(std::vector<EarlyPart>& parts, bool& complete, const ReuseOptions& reuse,
                const ReuseDecision& decision) {
  if (!ends_at_segments(reuse, decision)) return;
  const auto rectified = std::find_if(parts.begin(), parts.end(), [&](const EarlyPart& part) {
    return part.handed_over &&
           (part.decoded_by != 0 || static_cast<std::int32_t>(part.tokens.size()) >= reuse.min_tokens);
  });
  if (rectified == parts.end()) return;
  parts.erase(rectified, parts.end());
  complete = false;
}

}  // namespace

EarlySequence::EarlySequence(EarlyId id, EarlyPrompt prompt, ReuseDecision decision)
    : id_(id), prompt_(std::move(prompt)), decision_(std::move(decision)) {
  keep_exact(prompt_.parts, prompt_.complete, prompt_.reuse, decision_);
  refresh(none);
  whole_ = settled();
}

void EarlySequence::update(std::vector<EarlyPart> parts, bool complete) {
  for (EarlyPart& part : parts) {  // the caller may not know yet that this request has ended
    const auto over = ended_.find(part.decoded_by);
    if (over == ended_.end()) continue;
    part.tokens = over->second;
    part.decoded_by = 0;
  }
  keep_exact(parts, complete, prompt_.reuse, decision_);
  const auto same_parts =
      static_cast<std::size_t>(std::mismatch(parts.begin(), parts.end(), prompt_.parts.begin(), prompt_.parts.end(),
                                             [](const EarlyPart& a, const EarlyPart& b) {
                                               return a.decoded_by == b.decoded_by && a.tokens == b.tokens;
                                             })
                                   .first -
                               parts.begin());
  // A part that still follows the same request keeps its tokens; refresh() asks for further ones later.
  const bool goes_on = known_.part < same_parts || (known_.part == same_parts && known_.part == parts.size());
  Known now = goes_on ? known_ : Known{};
  extend(now, parts, prompt_.longest, none);
  // Nothing below allocates memory.
  if (!goes_on) {
    const auto common = static_cast<std::size_t>(
        std::mismatch(now.tokens.begin(), now.tokens.end(), known_.tokens.begin(), known_.tokens.end()).first -
        now.tokens.begin());
    if (common < known_.tokens.size() || common < now.tokens.size()) keep_first(common);
  }
  std::swap(known_, now);
  prompt_.parts.swap(parts);
  prompt_.complete = complete;
}

void EarlySequence::refresh(const DecodedTokens& decoded) { extend(known_, prompt_.parts, prompt_.longest, decoded); }

void EarlySequence::extend(Known& known, const std::vector<EarlyPart>& parts, std::int32_t longest,
                           const DecodedTokens& decoded) {
  const auto room = static_cast<std::size_t>(longest);
  while (known.part < parts.size()) {
    const EarlyPart& part = parts[known.part];
    const std::vector<TokenId>* tokens = part.decoded_by == 0 ? &part.tokens : decoded(part.decoded_by);
    if (tokens != nullptr) {
      const std::size_t taken = known.tokens.size() - known.begin;
      const std::size_t more = std::min(tokens->size() - taken, room - known.tokens.size());
      const auto first = tokens->begin() + static_cast<std::ptrdiff_t>(taken);
      known.tokens.insert(known.tokens.end(), first, first + static_cast<std::ptrdiff_t>(more));
    }
    if (part.decoded_by != 0 || known.tokens.size() - known.begin < part.tokens.size()) return;
    ++known.part;
    known.begin = known.tokens.size();
  }
}

void EarlySequence::ended(RequestId id, const std::vector<TokenId>* tokens) {
  for (std::size_t i = 0; i < prompt_.parts.size(); ++i) {
    EarlyPart& part = prompt_.parts[i];
    if (part.decoded_by != id) continue;
    part.decoded_by = 0;
    if (tokens != nullptr) part.tokens = ended_[id] = *tokens;
    if (i == known_.part) {  // tokens that a stop string cut off were followed, too
      keep_first(known_.begin + std::min(known_.tokens.size() - known_.begin, part.tokens.size()));
    }
    if (tokens != nullptr) continue;
    prompt_.parts.resize(i);
    prompt_.complete = false;
    break;
  }
  refresh(none);
}

void EarlySequence::keep_first(std::size_t count) {
  known_.tokens.resize(count);
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
  if (!cache_ || !cache_->layout().raw_keys || (prompt_.context && prompt_.context->imported_kv)) return {};
  return {id_, &*cache_, known_.tokens, done_, static_cast<std::int32_t>(known_.tokens.size())};
}

bool EarlySequence::add_rows(std::int32_t count, StepRows& step) {
  const std::int32_t cache = step.add_cache(&*cache_);
  for (std::int32_t at = done_; at < done_ + count; ++at) {
    step.add_row(cache, at, known_.tokens[static_cast<std::size_t>(at)]);
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
  const auto run = std::span(known_.tokens).first(static_cast<std::size_t>(done_));
  const auto common =
      static_cast<std::size_t>(std::mismatch(run.begin(), run.end(), prompt.begin(), prompt.end()).first - run.begin());
  const bool whole = common == prompt.size() && common == known_.tokens.size() && !logits_.empty();
  if (!whole) logits_.clear();
  const auto length = static_cast<std::int32_t>(whole ? common : std::min(common, prompt.size() - 1));
  if (length == 0) return std::nullopt;
  cache_->truncate(length);
  return Taken{std::move(*cache_), std::min(placed_, length), std::min(ahead_, length), length, std::move(logits_)};
}

}  // namespace baton
