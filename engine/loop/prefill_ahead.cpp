// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/prefill_ahead.h"

#include <algorithm>

#include "engine/loop/kv_lookup.h"
#include "engine/loop/prompt_assembly.h"
#include "engine/loop/step_plan.h"
#include "engine/reuse/placement.h"

namespace baton {
namespace {

const std::vector<TokenId>* none(RequestId) { return nullptr; }

/// Drops the first part that the request will rectify, and all parts behind it.
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

void KnownParts::extend(const std::vector<EarlyPart>& parts, std::int32_t longest, const DecodedTokens& decoded) {
  const auto room = static_cast<std::size_t>(longest);
  while (part_ < parts.size()) {
    const EarlyPart& part = parts[part_];
    const std::vector<TokenId>* tokens = part.decoded_by == 0 ? &part.tokens.ids() : decoded(part.decoded_by);
    if (tokens != nullptr) {
      const std::size_t taken = tokens_.size() - begin_;
      const std::size_t more = std::min(tokens->size() - taken, room - tokens_.size());
      const auto first = tokens->begin() + static_cast<std::ptrdiff_t>(taken);
      tokens_.insert(tokens_.end(), first, first + static_cast<std::ptrdiff_t>(more));
    }
    if (part.decoded_by != 0 || tokens_.size() - begin_ < part.tokens.size()) return;
    ++part_;
    begin_ = tokens_.size();
  }
}

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
  const bool goes_on = known_.part() < same_parts || (known_.part() == same_parts && known_.part() == parts.size());
  KnownParts now = goes_on ? known_ : KnownParts{};
  now.extend(parts, prompt_.longest, none);
  // Nothing below allocates memory.
  if (!goes_on) {
    const auto common = static_cast<std::size_t>(
        std::mismatch(now.tokens().begin(), now.tokens().end(), known_.tokens().begin(), known_.tokens().end()).first -
        now.tokens().begin());
    if (common < known_.tokens().size() || common < now.tokens().size()) keep_first(common);
  }
  std::swap(known_, now);
  prompt_.parts.swap(parts);
  prompt_.complete = complete;
}

void EarlySequence::refresh(const DecodedTokens& decoded) { known_.extend(prompt_.parts, prompt_.longest, decoded); }

void EarlySequence::ended(RequestId id, const std::vector<TokenId>* tokens) {
  for (std::size_t i = 0; i < prompt_.parts.size(); ++i) {
    EarlyPart& part = prompt_.parts[i];
    if (part.decoded_by != id) continue;
    part.decoded_by = 0;
    if (tokens != nullptr) part.tokens = ended_[id] = *tokens;
    if (i == known_.part()) {  // tokens that a stop string cut off were followed, too
      keep_first(known_.begin() + std::min(known_.tokens().size() - known_.begin(), part.tokens.size()));
    }
    if (tokens != nullptr) continue;
    prompt_.parts.resize(i);
    prompt_.complete = false;
    break;
  }
  refresh(none);
}

void EarlySequence::keep_first(std::size_t count) {
  known_.keep_first(count);
  logits_.clear();
  done_ = std::min(done_, static_cast<std::int32_t>(count));
  if (cache_) done_ = cache_->truncate(done_);
  placed_ = std::min(placed_, done_);
  ahead_ = std::min(ahead_, done_);
}

void EarlySequence::start(KvCache cache, std::int32_t placed) {
  cache_.emplace(std::move(cache));
  cache_->commit(placed);
  placed_ = ahead_ = done_ = placed;
}

LivePrefix EarlySequence::live() const {
  if (!cache_ || !cache_->layout().raw_keys || (prompt_.context && prompt_.context->imported_kv)) return {};
  return {id_, &*cache_, known_.tokens(), done_, static_cast<std::int32_t>(known_.tokens().size())};
}

/// A later text may end another prompt's common beginning, and what is known of an answer may change: the prompt can
/// go back to where its parts begin.
void EarlySequence::want_states() {
  std::int32_t end = 0;
  for (std::size_t part = 0; part <= known_.part() && part < prompt_.parts.size(); ++part) {
    cache_->states().want(end);
    end += static_cast<std::int32_t>(prompt_.parts[part].tokens.size());
  }
}

bool EarlySequence::add_rows(std::int32_t count, StepRows& step) {
  if (cache_->states().kept()) want_states();
  const std::int32_t cache = step.add_cache(&*cache_);
  for (std::int32_t at = done_; at < done_ + count; ++at) {
    step.add_row(cache, at, known_.tokens()[static_cast<std::size_t>(at)]);
    step.path.push_back({0, cache_->layout().layers(), -1});
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
  const auto run = std::span(known_.tokens()).first(static_cast<std::size_t>(done_));
  const auto common =
      static_cast<std::size_t>(std::mismatch(run.begin(), run.end(), prompt.begin(), prompt.end()).first - run.begin());
  const bool whole = common == prompt.size() && common == known_.tokens().size() && !logits_.empty();
  if (!whole) logits_.clear();
  const std::int32_t length =
      cache_->truncate(static_cast<std::int32_t>(whole ? common : std::min(common, prompt.size() - 1)));
  if (length == 0) return std::nullopt;
  return Taken{std::move(*cache_), std::min(placed_, length), std::min(ahead_, length), length, std::move(logits_)};
}

namespace {

constexpr std::int32_t kNextBlock = 4;  // block of a prompt whose turn is next: the request will wait for its backlog
constexpr std::int32_t kUrgent = 32;    // maximum rows of a complete prompt, in a step with decoding sequences
constexpr std::int32_t kIdleRows = 32;  // rows of a step without requests; a new request waits for at most this step

KvLayout early_layout(const EarlySequence& sequence, const Model& model) {
  const EarlyPrompt& prompt = sequence.prompt();
  return layout_for(prompt.reuse, prompt.keep_context, model,
                    prompt.reuse.record ? sequence.decision().range : LayerRange{});
}

std::int64_t early_bytes(const EarlySequence& sequence, const Backend& backend, const Model& model) {
  return static_cast<std::int64_t>(
      KvCache::bytes_for(backend, early_layout(sequence, model), sequence.prompt().longest));
}

}  // namespace

PrefillAhead::PrefillAhead(Backend& backend, const Model& model, RopeTable& angles, PrefixCache& prefixes,
                           SpareRows& spare, const LocalEngineOptions& options)
    : backend_(backend),
      model_(model),
      angles_(angles),
      prefixes_(prefixes),
      max_rows_(options.max_step_rows),
      spare_(spare) {}

std::size_t PrefillAhead::index_of(EarlyId id) const {
  const auto found = std::find_if(early_.begin(), early_.end(), [&](const auto& one) { return one->id() == id; });
  return static_cast<std::size_t>(found - early_.begin());
}

void PrefillAhead::prepare(EarlyId id, EarlyPrompt prompt, ReuseDecision decision) {
  prompt.longest = std::min(prompt.longest, model_.options.context);
  early_.push_back(std::make_unique<EarlySequence>(id, std::move(prompt), std::move(decision)));
}

void PrefillAhead::update(EarlyId id, std::vector<EarlyPart> parts, bool complete) {
  if (const std::size_t at = index_of(id); at < early_.size()) early_[at]->update(std::move(parts), complete);
}

void PrefillAhead::forget(EarlyId id) {
  if (const std::size_t at = index_of(id); at < early_.size())
    early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(at));
}

void PrefillAhead::submitted(EarlyId id) {
  if (const std::size_t at = index_of(id); at < early_.size()) early_[at]->submitted();
}

void PrefillAhead::refresh(const DecodedTokens& decoded) {
  for (const auto& one : early_) one->refresh(decoded);
}

void PrefillAhead::ended(RequestId id, const std::vector<TokenId>* tokens) {
  for (const auto& one : early_) one->ended(id, tokens);
}

std::optional<EarlySequence::Taken> PrefillAhead::take(EarlyId id, std::span<const TokenId> prompt,
                                                       std::int32_t positions, const KvLayout& layout) {
  const std::size_t at = index_of(id);
  if (at == early_.size()) return std::nullopt;
  auto taken = early_[at]->take(prompt, positions, layout);
  early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(at));
  return taken;
}

bool PrefillAhead::evict_last(EarlyId but) {
  for (std::size_t i = early_.size(); i-- > 0;) {
    if (!early_[i]->started() || early_[i]->id() == but) continue;
    early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

std::int64_t PrefillAhead::bytes_of(EarlyId id) const {
  const std::size_t at = index_of(id);
  return at < early_.size() ? static_cast<std::int64_t>(early_[at]->bytes()) : 0;
}

std::int64_t PrefillAhead::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& one : early_) bytes += static_cast<std::int64_t>(one->bytes());
  return bytes;
}

void PrefillAhead::add_live(std::vector<LivePrefix>& live) const {
  for (const auto& one : early_) {
    if (LivePrefix early = one->live(); early.cache != nullptr) {
      early.coming = early.ready;
      live.push_back(early);
    }
  }
}

std::vector<LivePrefix> PrefillAhead::live_of(std::span<const LivePrefix> running) const {
  std::vector<LivePrefix> live(running.begin(), running.end());
  for (const auto& one : early_) {
    if (LivePrefix early = one->live(); early.cache != nullptr) live.push_back(early);
  }
  return live;
}

std::int32_t PrefillAhead::computed(EarlyId id, std::span<const TokenId> prompt) const {
  const std::size_t at = index_of(id);
  if (at == early_.size()) return 0;
  const LivePrefix live = early_[at]->live();
  return live.cache == nullptr ? 0 : live.usable(prompt, live.ready);
}

bool PrefillAhead::complete(EarlyId id) const {
  const std::size_t at = index_of(id);
  return at < early_.size() && early_[at]->started() && early_[at]->settled() && early_[at]->backlog() == 0;
}

/// True when a prompt that has not started waits for another one, which computes the beginning that they have in
/// common. It starts when it needs tokens of its own: at once if all of it is known, otherwise if they are worth a
/// start.
bool PrefillAhead::waits(const EarlySequence& sequence, std::span<const LivePrefix> live) const {
  if (sequence.started() || live.empty() || !takes_prefixes(sequence.prompt().reuse)) return false;
  const auto known = static_cast<std::int32_t>(sequence.known().size());
  if (lead_of(live, sequence.known(), known - 1, 0).id != 0) return true;
  if (sequence.settled()) return false;
  return std::any_of(live.begin(), live.end(), [&](const LivePrefix& one) {
    const std::int32_t common = one.common(sequence.known(), known);
    return common >= kMinFollowedTokens && known - common < kMinFollowedTokens;
  });
}

bool PrefillAhead::has_work(std::int64_t free_bytes, std::span<const LivePrefix> running) const {
  if (early_.empty()) return false;
  const std::vector<LivePrefix> live = live_of(running);
  return std::any_of(early_.begin(), early_.end(), [&](const auto& one) {
    return one->backlog() > 0 && (one->started() || early_bytes(*one, backend_, model_) <= free_bytes) &&
           !waits(*one, live);
  });
}

/// Allocates a sequence's cache and copies the longest exact prefix into it. Returns false when there is no memory.
bool PrefillAhead::start(EarlySequence& sequence, std::int64_t& free_bytes, std::span<const LivePrefix> live) {
  const std::int64_t bytes = early_bytes(sequence, backend_, model_);
  if (bytes > free_bytes) return false;
  try {
    KvCache cache(backend_, early_layout(sequence, model_), sequence.prompt().longest);
    PrefixCache::Match match;
    if (takes_prefixes(sequence.prompt().reuse))
      match = find_prefix(backend_, prefixes_, live, sequence.known(),
                          static_cast<std::int32_t>(sequence.known().size()) - 1);
    if (const ContextHandle& context = sequence.prompt().context) {
      const std::int32_t known = static_cast<std::int32_t>(sequence.known().size()) - 1;
      const std::int32_t exact =
          std::min({common_length(*context, sequence.known(), prefixes_.store()), context->exact, known});
      if (exact > match.length) match = prefixes_.read(*context, exact);
    }
    for (const PrefixCache::Piece& piece : match.pieces)
      insert(backend_, angles_, cache, {piece.begin, piece.segment.get(), 0, piece.count});
    match.put_state(cache);
    sequence.start(std::move(cache), match.length);
  } catch (const std::exception&) {  // the request will compute the prompt
    sequence.give_up();
    return false;
  }
  free_bytes -= bytes;
  return true;
}

void PrefillAhead::add_rows(StepRows& step, std::int32_t decoding, bool prefilling, std::int64_t free_bytes,
                            std::span<const LivePrefix> running, std::int32_t at_least) {
  parts_.clear();
  const bool wanted = std::any_of(early_.begin(), early_.end(), [](const auto& one) { return one->backlog() > 0; });
  if (prefilling || !wanted) return;
  std::vector<LivePrefix> live = live_of(running);
  const std::int32_t spare = decoding > 0 ? std::max(spare_.next(decoding), at_least) : 0;
  auto left = static_cast<std::int32_t>(std::clamp<std::int64_t>(max_rows_ - step.size(), 0, spare));
  bool urgent = false;
  const auto add = [&](EarlySequence& one, std::int64_t rows) {
    if (rows < 1 || waits(one, live)) return false;
    if (!one.started()) {
      if (!start(one, free_bytes, live)) return false;
      if (const LivePrefix early = one.live(); early.cache != nullptr) live.push_back(early);
    }
    rows = std::min<std::int64_t>({rows, one.backlog(), max_rows_ - step.size()});  // a prefix may have been placed
    if (rows < 1) return false;
    const auto count = static_cast<std::int32_t>(rows);
    const bool logits = one.add_rows(count, step);
    if (logits) step.logits_rows.push_back(static_cast<std::int32_t>(step.size() - 1));
    parts_.push_back({&one, count, logits});
    left = std::max(0, left - count);
    return true;
  };
  // The prompts that are wholly known come first: their requests are submitted next, so they do not wait until a block
  // is full.
  for (const auto& one : early_) {
    const std::int32_t backlog = one->backlog();
    if (backlog < 1 || !one->settled()) continue;
    if (decoding > 0 && backlog > kUrgent) continue;
    urgent = add(*one, backlog) || urgent;
  }
  if (decoding == 0 && !urgent) left = std::min(kIdleRows, max_rows_);
  for (const auto& one : early_) {
    const auto taken = static_cast<std::int32_t>(step.size());
    const std::int32_t whole = rows_to_fill(taken, max_rows_ - taken);
    const std::int32_t backlog = one->backlog();
    const bool in_step =
        std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.sequence == one.get(); });
    const bool next = one->prompt().complete && backlog < whole;
    const std::int32_t block = decoding == 0 ? 1 : next ? std::min(kNextBlock, whole) : whole;
    if (in_step || backlog < block || left < (parts_.empty() ? block : 2 * whole)) continue;
    const std::int32_t rows = rows_in_tiles(left, taken, backlog, max_rows_ - taken);
    add(*one, std::min(backlog, decoding == 0 ? left : std::max(block, rows)));
  }
}

std::int32_t PrefillAhead::rows() const {
  std::int32_t rows = 0;
  for (const Part& part : parts_) rows += part.rows;
  return rows;
}

void PrefillAhead::commit(std::span<const float> logits) {
  const auto vocabulary = static_cast<std::size_t>(model_.config.vocabulary);
  for (const Part& part : parts_) {
    part.sequence->commit(part.rows, part.logits ? logits.first(vocabulary) : std::span<const float>());
    if (part.logits) logits = logits.subspan(vocabulary);
  }
  parts_.clear();
}

bool PrefillAhead::drop_parts() {
  const bool any = !parts_.empty();
  for (const Part& part : parts_) forget(part.sequence->id());
  parts_.clear();
  return any;
}

}  // namespace baton
