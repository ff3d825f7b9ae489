// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/sequence.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {
namespace {

RequestState state_of(RequestId id, GenerationRequest request, ReuseDecision decision) {
  RequestState state{
      .id = id, .request = std::move(request), .decision = std::move(decision), .submitted = Clock::now()};
  for (const PromptPart& part : state.request.prompt)
    state.tokens.insert(state.tokens.end(), part.tokens.begin(), part.tokens.end());
  state.prompt_length = static_cast<std::int32_t>(state.tokens.size());
  state.tokens.reserve(state.tokens.size() + static_cast<std::size_t>(state.request.max_tokens));
  return state;
}

/// Asks a cache to keep the states at which later prompts may branch: behind each part of the prompt, and behind all of
/// it if choices are scored from there.
void want_states(SequenceStates& states, const RequestState& state, bool scored) {
  if (scored) states.want(state.prompt_length);
  if (!keeps_prefixes(state.request.reuse) && !state.request.keep_context) return;
  std::int32_t end = 0, wanted = 0;
  for (const PromptPart& part : state.request.prompt) {
    end += static_cast<std::int32_t>(part.tokens.size());
    if (end < wanted + PrefixCache::kWorthKeeping) continue;
    states.want(end);
    wanted = end;
  }
}

}  // namespace

bool is_scoring(const Sequence& sequence) {
  const ChoiceScores* scores = sequence.answer.scores();
  return scores != nullptr && scores->begun();
}

Sequence::Sequence(RequestId id, GenerationRequest request, ReuseDecision decision, const Model& model,
                   std::shared_ptr<TokenMasks> masks)
    : state(state_of(id, std::move(request), std::move(decision))),
      prompt(state.request, state.result, state.prompt_length, model.config.layers),
      answer(state.request, state.result, model, std::move(masks)),
      model_(model) {}

void Sequence::be_tentative(EarlyId twin) {
  speculation.be_tentative();
  state.request.early = twin;
}

void Sequence::be_exact() {
  state.decision.exact = true;
  speculation.be_exact();
}

void Sequence::begin_check() {
  AnswerWriter::Beginning beginning = answer.beginning();
  drop_tentative();  // allocates no memory, and neither does what follows
  answer.restart(std::move(beginning));
  be_exact();
}

/// Moves what was written tentatively from the result to the check.
void Sequence::drop_tentative() noexcept {
  GenerationResult& result = state.result;
  result.tentative_tokens = static_cast<std::int64_t>(result.tokens.size());
  speculation.begin_check(std::move(result.tokens));
  result.tokens.clear();
  result.text.clear();
  result.segments.clear();  // they were approximate
  result.kv_ahead = 0;
  result.expected_nats = result.guard_left = result.guard_nats = -1.0f;  // those of the tentative prompt
  state.tokens.resize(static_cast<std::size_t>(state.prompt_length));
  cache_.reset();
  prompt.drop();
  answer.drop();
}

void Sequence::start(KvCache cache, PromptAssembly assembly, const PrefillTimes& times) {
  cache_.emplace(std::move(cache));
  prompt.start(std::move(assembly), times, *cache_);
  if (cache_->states().kept()) want_states(cache_->states(), state, answer.scores() != nullptr);
}

std::int32_t Sequence::pending() const {
  return decoding() ? 1 + static_cast<std::int32_t>(speculation.draft().size()) : prompt.pending();
}

std::int32_t Sequence::add_rows(std::int32_t share, StepRows& step) {
  if (!decoding()) return prompt.add_rows(share, state.tokens, *cache_, step);
  const std::int32_t cache = step.add_cache(&*cache_);
  if (is_scoring(*this)) step.unsummed.push_back(&*cache_);  // the rows of a choice are dropped
  if (!speculation.draft().empty()) step.stepwise.push_back(&*cache_);
  std::int32_t at = cache_->length();
  step.add_row(cache, at, state.tokens.back());
  for (const TokenId id : speculation.draft()) step.add_row(cache, ++at, id);
  step.path.insert(step.path.end(), speculation.draft().size() + 1, {0, model_.config.layers, -1});
  return pending();
}

void Sequence::commit(std::span<const RowPath> paths, const StepTimes& times) {
  if (!decoding()) return prompt.commit(paths, times, *cache_);
  cache_->commit(cache_->length() + pending());
  if (speculation.is_guess()) state.result.drafted_tokens += static_cast<std::int64_t>(speculation.draft().size());
}

Sequence::Next Sequence::advance(std::span<const float> logits, std::vector<float>& scratch, DraftLength& drafts) {
  const bool handed_over = state.result.hops > 0 && state.decision.tie_factor > 0.0f;
  if ((handed_over || doubted_) && must_decide_again(answer.decision(logits))) return Next::step;
  begin_output();
  if (is_scoring(*this)) {
    if (const Next next = score(logits); is_scoring(*this) || !decoding()) return next;
    return advance({-1, prompt_entropy_}, drafts);  // no token: the answer is forced now
  }
  const bool again = answer.scores() != nullptr && doubted_;  // these logits came before, of handed-over KV
  if (state.request.callbacks.on_logits && !speculation.is_tentative() && !again)
    state.request.callbacks.on_logits(logits);
  if (state.measured) state.measured->keep(logits);
  const float entropy = answer.entropy_behind(logits);
  if (answer.scores() != nullptr) {
    prompt_entropy_ = entropy;
    if (const Next next = score(logits); is_scoring(*this) || !decoding()) return next;
  }
  return advance(answer.choose(logits, state.tokens, entropy, scratch), drafts);
}

/// Takes logits for the choices. The rows of a choice are dropped when it is scored. When all choices are scored,
/// is_scoring() is false.
Sequence::Next Sequence::score(std::span<const float> logits) {
  ChoiceScores& scores = *answer.scores();
  const bool behind_prompt = !scores.begun();
  const auto with_kv = static_cast<std::int32_t>(state.tokens.size());  // positions with KV if the next token has none
  if (!scores.take(logits)) {
    state.tokens.push_back(scores.running()[scores.run()]);
    if (speculation.match_scored()) return Next::drafted;
    cache_->go_back(with_kv);
    speculation.drop_draft();
    return Next::step;
  }
  if (!behind_prompt) {
    state.tokens.resize(static_cast<std::size_t>(state.prompt_length));
    cache_->go_back(state.prompt_length);
  }
  speculation.drop_draft();
  if (!scores.running().empty()) {
    state.tokens.push_back(scores.running().front());
    return Next::step;
  }
  if (must_decide_again(scores.decision())) {
    scores.restart();
    return Next::step;
  }
  answer.end_scores();
  return Next::step;
}

/// Counts what is decided on handed-over KV. If the alternatives are too near, all that is not exact is computed anew,
/// the answer so far included, and the logits come again.
bool Sequence::must_decide_again(const std::optional<Decision>& decision) {
  GenerationResult& result = state.result;
  if (doubted_ && (decision || answer.scores() == nullptr)) {  // without a decision only what agrees is left
    result.decisions_changed += !decision || answer.agree(*doubted_, decision->best) ? 0 : 1;
    doubted_.reset();
  }
  if (!decision) return false;
  if (result.hops == 0 || state.decision.tie_factor <= 0.0f) return false;
  ++result.decisions;
  const float nats = result.guard_nats >= 0.0f ? result.guard_nats : result.expected_nats;
  const double least = near_tie(state.decision, nats, decision->tokens);
  if (decision->gap > least) return false;
  ++result.decisions_exact;
  doubted_ = decision->best;
  if (state.measured && !state.measured->has_answer()) state.measured->set_answer({});  // it is two turns in one now
  speculation.drop_draft();
  for (SegmentHandle& segment : result.segments) {  // texts that others have taken already; exact ones follow
    if (segment && segment->hops > 0) segment = nullptr;
  }
  prompt.compute_exactly(
      static_cast<std::int32_t>(state.tokens.size()),
      fmt::format("a decision has a margin of {:.2g} nats; {:.2g} are expected to be safe", decision->gap, least),
      *cache_);
  return true;
}

Sequence::Next Sequence::advance(const ChosenToken& chosen, DraftLength& drafts) {
  const auto with_kv = static_cast<std::int32_t>(state.tokens.size());  // positions with KV if the token is not drafted
  begin_output();
  const bool over = answer.append(chosen, state.tokens, speculation.is_tentative(), state.submitted);
  if (const auto confirmed = speculation.compare(state.result.tokens, over)) {
    state.result.confirmed_tokens = *confirmed;
    if (state.request.callbacks.on_confirmed)
      state.request.callbacks.on_confirmed(*confirmed, state.result.tentative_tokens);
  }
  const Speculation::Chosen relation = speculation.match_token(state.tokens.back(), over, drafts);
  if (relation == Speculation::Chosen::guessed) ++state.result.accepted_tokens;
  if (relation != Speculation::Chosen::other) return Next::drafted;
  cache_->go_back(with_kv);
  speculation.drop_draft();
  return over ? Next::end : Next::step;
}

/// Ends the prompt. Called when the logits of its last token are available, and again with each further token.
void Sequence::begin_output() {
  if (!prompt.end()) return;  // this is not the first call
  if (state.request.callbacks.on_prefilled && !speculation.is_tentative())
    state.request.callbacks.on_prefilled(state.result);
}

void Sequence::keep_chosen() {
  if (cache_ && decoding())
    cache_->truncate(std::max(state.prompt_length, static_cast<std::int32_t>(state.tokens.size()) - 1));
}

void Sequence::close(FinishReason reason, const std::string& error) {
  // eos stands for any end of the answer by itself; the writer knows which one it was.
  state.result.reason = reason == FinishReason::eos ? answer.reason() : reason;
  state.result.error = error;
  if (speculation.is_tentative()) return drop_tentative();  // cut off before anything was confirmed
  answer.finish();
}

void Sequence::fail(const char* error) noexcept {
  if (speculation.is_tentative()) drop_tentative();
  state.result.reason = FinishReason::error;
  state.result.error.clear();
  try_to([&] { state.result.error = error; });
}

void Sequence::deliver() {
  cache_.reset();
  prompt.drop();
  state.request.prompt.clear();  // also drops its segments; the result then holds the last handles
  state.request.context.reset();
  const auto on_finished = std::move(state.request.callbacks.on_finished);
  if (on_finished) on_finished(std::move(state.result));
}

Draft find_draft(const Sequence& sequence, std::int32_t max_tokens) {
  if (is_scoring(sequence)) {
    const ChoiceScores& scores = *sequence.answer.scores();
    const std::span<const TokenId> next = scores.running().subspan(scores.run() + 1);
    return {next.first(std::min(next.size(), static_cast<std::size_t>(max_tokens))), 0};
  }
  if (!sequence.decoding()) return {};
  const RequestState& state = sequence.state;
  const DraftSource source{.tokens = state.tokens,
                           .forced = state.request.forced,
                           .written = state.result.tokens.size(),
                           .max_tokens = state.request.max_tokens,
                           .summed = sequence.cache().received() != nullptr,
                           .stops = !state.request.stop.empty()};
  return sequence.answer.allowed_part(sequence.speculation.find(source, max_tokens));
}

bool chooses_alone(const Sequence& sequence) {
  const bool keeps_rows = sequence.state.measured && !sequence.state.measured->full();
  return !keeps_rows && sequence.answer.chooses_alone();
}

LivePrefix live_prefix(const Sequence& sequence) {
  const RequestState& state = sequence.state;
  if (sequence.cache_bytes() == 0 || !keeps_prefixes(state.request.reuse) || has_imported_kv(state.request)) return {};
  const PromptAssembly& assembly = sequence.prompt.assembly();
  const std::int32_t cached = sequence.cache().length();
  const std::int32_t length = sequence.decoding() ? cached : state.prompt_length;
  const std::int32_t exact = assembly.hops == 0 ? length : std::min(length, assembly.exact_length);
  const std::int32_t ready = assembly.kv().is_uploading() ? 0 : std::min(cached, exact);
  return {state.id, &sequence.cache(), state.tokens, ready, sequence.decoding() ? ready : exact};
}

}  // namespace baton
