// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/loop/scheduler.h"

namespace baton {
Sequence::Sequence(RequestId id, GenerationRequest request, const Model& model, std::shared_ptr<TokenMasks> masks)
    : id_(id),
      request_(std::move(request)),
      model_(model),
      sampler_(request_.sampling),
      decoder_(*model.tokenizer),
      stops_(request_.stop),
      submitted_(Clock::now()) {
  if (masks) matcher_.emplace(std::move(masks));
  if (!request_.choices.empty()) scores_.emplace(std::move(request_.choices), model.config.eos_tokens);
  for (const PromptPart& part : request_.prompt) tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
  prompt_length_ = static_cast<std::int32_t>(tokens_.size());
  tokens_.reserve(tokens_.size() + static_cast<std::size_t>(request_.max_tokens));
  result_.prompt_tokens = prompt_length_;
  result_.kv_entries = static_cast<std::int64_t>(prompt_length_) * model.config.layers;
}

void Sequence::be_tentative(EarlyId twin) {
  tentative_ = true;
  request_.early = twin;
}

void Sequence::begin_check() {
  Sampler sampler(request_.sampling);
  StreamDecoder decoder(*model_.tokenizer);
  StopStrings stops(request_.stop);
  drop_tentative();  // allocates no memory, and neither does what follows
  sampler_ = std::move(sampler);
  if (matcher_) matcher_->restart();
  decoder_ = std::move(decoder);
  stops_ = std::move(stops);
  be_exact();
}

/// What was written tentatively is in the result no longer.
void Sequence::drop_tentative() {
  check_ = std::move(result_.tokens);
  result_.tentative_tokens = static_cast<std::int64_t>(check_.size());
  result_.tokens.clear();
  result_.text.clear();
  result_.segments.clear();  // they were approximate
  tokens_.resize(static_cast<std::size_t>(prompt_length_));
  cache_.reset();
  assembly_.reset();
  text_length_.clear();
  entropy_.clear();
  draft_.clear();
  expected_.reset();
  next_row_ = 0;
  result_.kv_ahead = 0;
  result_.expected_nats = result_.guard_left = result_.guard_nats = -1.0f;  // those of the tentative prompt
  prefilled_ = false;
  first_token_ = {};
  tentative_ = written_ = false;
}

void Sequence::start(KvCache cache, PromptAssembly assembly, const PrefillTimes& times) {
  cache_.emplace(std::move(cache));
  assembly_.emplace(std::move(assembly));
  sparse_ = sparse_layers_of(assembly_->schedule, model_.config.layers);
  detection_ends_.assign(assembly_->schedule.detections.size(), 0);
  for (std::size_t i = 0; i < rows().size(); ++i) {
    const std::int32_t detection = rows()[i].path.detection;
    if (detection >= 0) detection_ends_[static_cast<std::size_t>(detection)] = i + 1;
  }
  for (std::size_t d = 0; d < detection_ends_.size(); ++d) {  // with the readers behind them
    std::size_t& end = detection_ends_[d];
    while (end < rows().size() && rows()[end].position < assembly_->schedule.detections[d].readers_end) ++end;
  }
  computed_.assign(static_cast<std::size_t>(prompt_length_), 0);
  recomputed_.assign(static_cast<std::size_t>(prompt_length_), false);
  result_.prefill = times;
  result_.hops = assembly_->hops;
  if (assembly_->hops > 0) result_.expected_nats = request_.reuse.predicted;
  for (std::int32_t at = 0; at < prompt_length_; ++at) {
    if (!assembly_->computed(at)) continue;
    computed_[static_cast<std::size_t>(at)] = model_.config.layers;
    recomputed_[static_cast<std::size_t>(at)] = true;
    if (assembly_->ahead(at)) result_.kv_ahead += model_.config.layers;
  }
  cache_->commit(rows().empty() ? prompt_length_
                                : rows().front().position);  // positions before the first scheduled row hold KV
}

LivePrefix Sequence::live() const {
  if (!cache_ || !keeps_prefixes(request_.reuse) || has_imported_kv()) return {};
  const std::int32_t length = decoding() ? cache_->length() : prompt_length_;
  const std::int32_t exact = assembly_->hops == 0 ? length : std::min(length, assembly_->exact_length);
  const std::int32_t ready = assembly_->is_uploading() ? 0 : std::min(cache_->length(), exact);
  return {id_, &*cache_, tokens_, ready, decoding() ? ready : exact};
}

std::int32_t Sequence::add_rows(std::int32_t share, StepRows& step) {
  const std::int32_t cache = step.add_cache(&*cache_);
  if (decoding()) {
    if (is_scoring()) step.unsummed.push_back(&*cache_);  // the rows of a choice are dropped
    std::int32_t at = cache_->length();
    step.add_row(cache, at, tokens_.back());
    for (const TokenId id : draft_) step.add_row(cache, ++at, id);
    step.path.insert(step.path.end(), draft_.size() + 1, {0, model_.config.layers, -1});
    return pending();
  }
  std::int32_t from = -1;  // the schedule's detection that the newest one of the step maps to
  std::size_t at = next_row_;
  std::size_t whole = next_row_;  // all rows of a detection run in one step, with the rows between them
  for (; at < rows().size() && (static_cast<std::int32_t>(at - next_row_) < share || at < whole); ++at) {
    const ScheduledRow& row = rows()[at];
    if (row.path.detection >= 0) whole = std::max(whole, detection_ends_[static_cast<std::size_t>(row.path.detection)]);
    step.add_row(cache, row.position, tokens_[static_cast<std::size_t>(row.position)]);
    RowPath path = row.path;
    if (path.detection >= 0) {
      if (path.detection != from) {
        from = path.detection;
        step.detections.push_back(assembly_->schedule.detections[static_cast<std::size_t>(from)]);
      }
      path.detection = static_cast<std::int32_t>(step.detections.size()) - 1;
    }
    step.path.push_back(path);
  }
  return static_cast<std::int32_t>(at - next_row_);
}

void Sequence::commit(std::span<const RowPath> paths, const StepTimes& times) {
  if (decoding()) {
    cache_->commit(cache_->length() + pending());
    if (match_ > 0) result_.drafted_tokens += static_cast<std::int64_t>(draft_.size());
    return;
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const ScheduledRow& row = rows()[next_row_ + i];
    const auto at = static_cast<std::size_t>(row.position);
    computed_[at] = paths[i].computed();
    const bool grouped = row.path.anew && paths[i].computed() < model_.config.layers;  // droidspeak chooses no tokens
    recomputed_[at] = !grouped && (row.path.detection < 0 || paths[i].leave > row.path.leave);
  }
  next_row_ += paths.size();
  cache_->commit(decoding() ? prompt_length_ : rows()[next_row_].position);

  PrefillTimes& parts = result_.prefill;
  for (std::int32_t layer = 0; layer < model_.config.layers; ++layer) {
    (layer < sparse_.begin ? parts.full_layers
     : layer < sparse_.end ? parts.sparse_layers
                           : parts.tail) += times.layer[static_cast<std::size_t>(layer)];
  }
  parts.copy += times.arriving;
  parts.detect += times.detect;
  parts.tail += times.other;
}

bool Sequence::fall_back() {
  if (prefilled_ || !decoding() || !assembly_->schedule.guard) return false;
  result_.guard_left = assembly_->schedule.guard->left;
  const float bound = request_.reuse.max_left;
  if (bound > 0.0f) result_.guard_nats = result_.guard_left * request_.reuse.tolerance / bound;
  if (bound < 0.0f || result_.guard_left <= bound) return false;
  assembly_->make_exact(prompt_length_, model_.config.layers,
                        fmt::format("the guard measured a change of {:.2g}; at most {:.2g} is expected to stay within "
                                    "{:.2g} nats",
                                    result_.guard_left, bound, request_.reuse.tolerance));
  sparse_ = sparse_layers_of(assembly_->schedule, model_.config.layers);
  detection_ends_.clear();
  next_row_ = 0;
  result_.hops = 0;
  cache_->truncate(rows().front().position);
  return true;
}

void Sequence::on_step_begin(Clock::time_point now) {
  if (first_step_ != Clock::time_point{}) return;
  first_step_ = now;
  result_.queue_ms = milliseconds(now - submitted_);
}

void Sequence::report_progress(Clock::time_point now, int interval_ms) {
  if (decoding() || next_row_ == 0 || !request_.callbacks.on_prefill_progress) return;
  if (now - std::max(reported_, first_step_) < std::chrono::milliseconds(interval_ms)) return;
  reported_ = now;
  request_.callbacks.on_prefill_progress(cache_->length(), prompt_length_);
}

double Sequence::deadline(double row_ms) const {
  return prompt_deadline(milliseconds(submitted_.time_since_epoch()), row_ms * static_cast<double>(rows().size()));
}

Draft Sequence::find_draft(std::int32_t max_tokens) const {
  if (is_scoring()) {
    const std::span<const TokenId> next = scores_->running().subspan(scores_->run() + 1);
    return {next.first(std::min(next.size(), static_cast<std::size_t>(max_tokens))), 0};
  }
  if (!decoding() || result_.tokens.empty()) return {};
  // A forced answer may be longer than the room behind its prompt.
  const std::int32_t left = request_.max_tokens - static_cast<std::int32_t>(result_.tokens.size());
  const bool summed = cache_->received() != nullptr;
  if (is_forced() || is_checking()) {
    if (summed && !request_.stop.empty()) return {};
    const auto next = std::span<const TokenId>(is_forced() ? request_.forced : check_).subspan(result_.tokens.size());
    return {next.first(std::min(next.size(), static_cast<std::size_t>(std::min(max_tokens, left)))), 0};
  }
  if (summed) return {};
  const Draft draft = baton::find_draft(tokens_, std::min(max_tokens, left - 1));
  return is_constrained() ? allowed_part(draft) : draft;
}

/// What follows a token that is not allowed would never be chosen.
Draft Sequence::allowed_part(Draft draft) const {
  AnswerMatcher matcher = *matcher_;
  const auto takes = [&](TokenId id) {
    try {
      return matcher.take(id);
    } catch (const std::exception&) {  // the token itself would end the request
      return false;
    }
  };
  const auto end = std::find_if_not(draft.tokens.begin(), draft.tokens.end(), takes);
  if (end == draft.tokens.begin()) return {};
  draft.tokens = draft.tokens.first(static_cast<std::size_t>(end - draft.tokens.begin()));
  return draft;
}

void Sequence::keep_chosen() {
  if (cache_ && decoding()) cache_->truncate(std::max(prompt_length_, static_cast<std::int32_t>(tokens_.size()) - 1));
}

void Sequence::set_draft(const Draft& draft, std::int32_t tokens) {
  draft_.assign(draft.tokens.begin(), draft.tokens.begin() + tokens);
  drafted_ = 0;
  match_ = draft.match;
  expected_.reset();
  if (match_ > 0) expected_ = draft.tokens.front();
}

bool Sequence::chooses_alone() const {
  const bool keeps_rows = measured_ && !measured_->full();
  return !request_.callbacks.on_logits && !keeps_rows && !sampler_.penalises() && !is_constrained() && !scores_;
}

TokenChoice Sequence::choice(std::int32_t ahead) const {
  TokenChoice how = is_forced() ? TokenChoice{} : sampler_.next(ahead);
  how.entropy = request_.reuse.record && request_.output_readers > 0 ? 1 : 0;
  return how;
}

Sequence::Next Sequence::advance(std::span<float> logits, DraftLength& drafts) {
  begin_output();
  if (is_scoring()) {
    if (const Next next = score(logits); is_scoring()) return next;
    return advance({-1, prompt_entropy_}, drafts);
  }
  if (request_.callbacks.on_logits && !tentative_) request_.callbacks.on_logits(logits);
  if (measured_) measured_->keep(logits);
  // Of the distribution before a constraint and sampling: how unsure the model was by itself.
  const float entropy = choice().entropy != 0 ? entropy_of(logits) : 0.0f;
  if (scores_) {
    prompt_entropy_ = entropy;
    if (const Next next = score(logits); is_scoring()) return next;
  }
  if (is_forced()) return advance({-1, entropy}, drafts);
  const TokenMask allowed = is_constrained() ? matcher_->allowed() : TokenMask{};
  const TokenId id = sampler_.choose(logits, tokens_, allowed).id;
  if (id < 0 && is_constrained())
    throw std::runtime_error("no token of the model's vocabulary continues the answer within its constraint");
  return advance({id, entropy}, drafts);
}

/// Takes logits for the choices. When all are scored, the best is what the answer is forced to be, and the rows of the
/// choices are gone.
Sequence::Next Sequence::score(std::span<const float> logits) {
  const bool prompt = !scores_->begun();
  const auto run = static_cast<std::int32_t>(tokens_.size());
  if (!scores_->take(logits)) {
    tokens_.push_back(scores_->running()[scores_->run()]);
    if (static_cast<std::size_t>(drafted_) < draft_.size()) {
      ++drafted_;
      return Next::drafted;
    }
    cache_->truncate(run);
    draft_.clear();
    return Next::step;
  }
  if (!prompt) {
    tokens_.resize(static_cast<std::size_t>(prompt_length_));
    cache_->truncate(prompt_length_);
  }
  draft_.clear();
  if (!scores_->running().empty()) {
    tokens_.push_back(scores_->running().front());
    return Next::step;
  }
  result_.choices = scores_->probabilities();
  if (!is_forced()) request_.forced = scores_->best();
  scores_.reset();
  return Next::step;
}

Sequence::Next Sequence::advance(const ChosenToken& chosen, DraftLength& drafts) {
  const auto run = static_cast<std::int32_t>(tokens_.size());  // positions that hold KV if this is not a drafted token
  const bool over = append(chosen);
  if (!check_.empty()) compare_with_tentative(over);
  if (expected_ && !over) {
    drafts.on_choice(match_, tokens_.back() == *expected_);
    expected_.reset();
  }
  const auto at = static_cast<std::size_t>(drafted_);
  if (!over && at < draft_.size() && tokens_.back() == draft_[at]) {
    ++drafted_;
    if (match_ > 0) {
      ++match_;
      ++result_.accepted_tokens;
      if (at + 1 < draft_.size()) expected_ = draft_[at + 1];
    }
    return Next::drafted;
  }
  cache_->truncate(run);
  draft_.clear();
  return over ? Next::end : Next::step;
}

/// Called when the logits of the last prompt token are available.
void Sequence::begin_output() {
  if (prefilled_) return;
  prefilled_ = true;
  prefilled_at_ = Clock::now();
  result_.prefill_ms = milliseconds(prefilled_at_ - first_step_);
  result_.kv_computed = std::accumulate(computed_.begin(), computed_.end(), std::int64_t{0});
  assembly_->account(computed_, recomputed_, model_.config.layers);
  result_.uses = assembly_->uses;
  result_.continued_tokens = assembly_->recordable();
  assembly_->release_segments();
  if (request_.callbacks.on_prefilled && !tentative_) request_.callbacks.on_prefilled(result_);
}

/// A forced answer ends when all of its tokens have been run: in the call that would choose the token after the last.
/// The check is over with the first token that differs, and when all tentative tokens have been chosen again.
void Sequence::compare_with_tentative(bool over) {
  const auto same = std::mismatch(result_.tokens.begin(), result_.tokens.end(), check_.begin(), check_.end()).first;
  if (!over && same == result_.tokens.end() && result_.tokens.size() < check_.size()) return;
  result_.confirmed_tokens = same - result_.tokens.begin();
  check_.clear();
  if (request_.callbacks.on_confirmed)
    request_.callbacks.on_confirmed(result_.confirmed_tokens, result_.tentative_tokens);
}

bool Sequence::append(const ChosenToken& chosen) {
  begin_output();
  const bool forced = is_forced();
  if (choice().entropy != 0) entropy_.push_back(chosen.entropy);
  const TokenId id = forced ? request_.forced[std::min(result_.tokens.size(), request_.forced.size() - 1)]
                            : id_of(chosen, static_cast<std::size_t>(model_.config.vocabulary));
  if (!forced) sampler_.advance();
  if (first_token_ == Clock::time_point{}) {
    first_token_ = Clock::now();
    (tentative_ ? result_.tentative_ms : result_.ttft_ms) = milliseconds(first_token_ - submitted_);
  }
  const auto& eos = model_.config.eos_tokens;
  if (forced ? result_.tokens.size() == request_.forced.size() : std::find(eos.begin(), eos.end(), id) != eos.end()) {
    reason_ = FinishReason::eos;
    return true;
  }
  tokens_.push_back(id);
  result_.tokens.push_back(id);
  const std::string text = decoder_.push(id);
  text_length_.push_back((text_length_.empty() ? 0 : text_length_.back()) + text.size());
  emit(id, text);
  if (stops_.found()) {
    reason_ = FinishReason::stop;
    return true;
  }
  if (is_constrained() && matcher_->take(id) && matcher_->complete()) {  // nothing but the end could follow
    reason_ = FinishReason::eos;
    return true;
  }
  if (static_cast<std::int32_t>(result_.tokens.size()) >= request_.max_tokens) {
    reason_ = FinishReason::length;
    return true;
  }
  return false;
}

void Sequence::emit(TokenId id, const std::string& text) {
  const std::string certain = stops_.push(text);
  result_.text += certain;
  const auto& receiver = tentative_ ? request_.callbacks.on_tentative_token : request_.callbacks.on_token;
  if (receiver) receiver(id, certain);
}

void Sequence::drop_tokens_after_stop() {
  const auto kept = std::upper_bound(text_length_.begin(), text_length_.end(), stops_.length()) - text_length_.begin();
  result_.tokens.resize(static_cast<std::size_t>(kept));
}

void Sequence::close(FinishReason reason, const std::string& error) {
  result_.reason = reason == FinishReason::eos ? reason_ : reason;
  result_.error = error;
  if (tentative_) return drop_tentative();  // cut off before anything was confirmed
  if (stops_.found()) {
    drop_tokens_after_stop();
    result_.confirmed_tokens = std::min(result_.confirmed_tokens, static_cast<std::int64_t>(result_.tokens.size()));
  } else {
    result_.text += stops_.push(decoder_.finish());
    result_.text += stops_.finish();
  }
  if (first_token_ != Clock::time_point{}) result_.decode_ms = milliseconds(Clock::now() - first_token_);
}

void Sequence::fail(const char* error) noexcept {
  if (tentative_) try_to([&] { drop_tentative(); });
  result_.reason = FinishReason::error;
  result_.error.clear();
  try_to([&] { result_.error = error; });
}

void Sequence::deliver() {
  cache_.reset();
  assembly_.reset();
  request_.prompt.clear();  // also drops its segments; the result then holds the last handles
  request_.context.reset();
  const auto on_finished = std::move(request_.callbacks.on_finished);
  if (on_finished) on_finished(std::move(result_));
}

}  // namespace baton
