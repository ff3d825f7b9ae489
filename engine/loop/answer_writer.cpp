// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/answer_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "engine/base/errors.h"

namespace baton {
namespace {

/// Returns log(sum(exp(logit))) of the finite logits.
double log_sum_exp(std::span<const float> logits) {
  double most = -HUGE_VAL;
  for (const float logit : logits) {
    if (std::isfinite(logit)) most = std::max(most, static_cast<double>(logit));
  }
  if (most == -HUGE_VAL) throw std::runtime_error("expected at least one finite logit, found none");
  double sum = 0.0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) sum += std::exp(static_cast<double>(logit) - most);
  }
  return most + std::log(sum);
}

double logit_of(std::span<const float> logits, TokenId id) {
  const float logit = logits[static_cast<std::size_t>(id)];
  return std::isfinite(logit) ? static_cast<double>(logit) : -HUGE_VAL;
}

}  // namespace

ChoiceScores::ChoiceScores(std::vector<std::vector<TokenId>> choices, std::vector<TokenId> eos)
    : choices_(std::move(choices)), eos_(std::move(eos)), ends_(choices_.size()), scores_(choices_.size()) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    ends_[i] = !eos_.empty() && std::any_of(choices_.begin(), choices_.end(), [&](const auto& other) {
      return other.size() > choices_[i].size() && std::equal(choices_[i].begin(), choices_[i].end(), other.begin());
    });
  }
}

std::span<const TokenId> ChoiceScores::running() const {
  if (!begun_ || at_ == choices_.size()) return {};
  return std::span(choices_[at_]).first(rows(at_));
}

void ChoiceScores::skip_scored() {
  while (at_ < choices_.size() && rows(at_) == 0) ++at_;
}

bool ChoiceScores::take(std::span<const float> logits) {
  const double sum = log_sum_exp(logits);
  if (!begun_) {
    for (std::size_t i = 0; i < choices_.size(); ++i) scores_[i] = logit_of(logits, choices_[i].front()) - sum;
    begun_ = true;
    skip_scored();
    return true;
  }
  const std::vector<TokenId>& choice = choices_[at_];
  if (++run_ < choice.size()) {
    scores_[at_] += logit_of(logits, choice[run_]) - sum;
  } else {
    double end = 0.0;  // probability
    for (const TokenId id : eos_) end += std::exp(logit_of(logits, id) - sum);
    scores_[at_] += std::log(end);
  }
  if (run_ < rows(at_)) return false;
  run_ = 0;
  ++at_;
  skip_scored();
  return true;
}

std::vector<double> ChoiceScores::probabilities() const {
  const double most = *std::max_element(scores_.begin(), scores_.end());
  std::vector<double> parts;
  double sum = 0.0;
  for (const double score : scores_) {
    parts.push_back(most == -HUGE_VAL ? 1.0 : std::exp(score - most));  // no choice is possible: all get the same
    sum += parts.back();
  }
  for (double& part : parts) part /= sum;
  return parts;
}

std::optional<Decision> ChoiceScores::decision() const {
  if (choices_.size() < 2) return std::nullopt;
  const auto best = static_cast<std::size_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
  std::size_t next = best == 0 ? 1 : 0;
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    if (i != best && scores_[i] > scores_[next]) next = i;
  }
  const double gap = scores_[best] == -HUGE_VAL ? 0.0 : scores_[best] - scores_[next];
  return Decision{best, gap, std::max(choices_[best].size(), choices_[next].size())};
}

void ChoiceScores::restart() {
  begun_ = false;
  at_ = run_ = 0;
}

const std::vector<TokenId>& ChoiceScores::best() const {
  return choices_[static_cast<std::size_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin())];
}

namespace {

constexpr std::size_t kMaxKnown = 8;  // each has a cache of up to 16 MiB

}  // namespace

AnswerWriter::AnswerWriter(GenerationRequest& request, GenerationResult& result, const Model& model,
                           std::shared_ptr<TokenMasks> masks)
    : request_(request),
      result_(result),
      tokenizer_(*model.tokenizer),
      config_(model.config),
      sampler_(request.sampling),
      decoder_(*model.tokenizer, !request.thinking),
      stops_(request.stop) {
  if (request.thinking) thinking_.emplace(*request.thinking);
  if (masks) matcher_.emplace(std::move(masks));
  if (!request.choices.empty()) scores_.emplace(std::move(request.choices), model.config.eos_tokens);
}

AnswerWriter::Beginning AnswerWriter::beginning() const {
  return {Sampler(request_.sampling), StreamDecoder(tokenizer_, !request_.thinking), StopStrings(request_.stop),
          request_.thinking ? std::optional<ThinkingReader>(*request_.thinking) : std::nullopt};
}

void AnswerWriter::drop() noexcept {
  text_length_.clear();
  entropy_.clear();
  first_token_ = {};
}

void AnswerWriter::restart(Beginning beginning) noexcept {
  sampler_ = std::move(beginning.sampler);
  if (matcher_) matcher_->restart();
  decoder_ = std::move(beginning.decoder);
  stops_ = std::move(beginning.stops);
  thinking_ = std::move(beginning.thinking);
}

void AnswerWriter::end_scores() {
  result_.choices = scores_->probabilities();
  if (!is_forced()) request_.forced = scores_->best();
  scores_.reset();
}

/// A constraint is applied on the host, so it needs the logits there.
bool AnswerWriter::chooses_alone() const {
  return !request_.callbacks.on_logits && !sampler_.penalises() && !is_constrained() && !scores_;
}

TokenChoice AnswerWriter::choice(std::int32_t ahead) const {
  TokenChoice how = is_forced() ? TokenChoice{} : sampler_.next(ahead);
  how.entropy = request_.reuse.record && request_.output_readers > 0 ? 1 : 0;
  return how;
}

float AnswerWriter::entropy_behind(std::span<const float> logits) const {
  return choice().entropy != 0 ? entropy_of(logits) : 0.0f;
}

std::optional<Decision> AnswerWriter::decision(std::span<const float> logits) {
  if (!is_constrained() || request_.sampling.temperature > 0.0f || sampler_.penalises()) return std::nullopt;
  const TokenMask allowed = matcher_->allowed();
  std::size_t count = 0;
  for (const std::uint32_t word : allowed) count += static_cast<std::size_t>(std::popcount(word));
  if (count < 2 || count > kFewTokens) return std::nullopt;
  std::vector<std::pair<float, TokenId>> order;  // the most probable first, as the choice of a token takes them
  for (std::size_t word = 0; word < allowed.size(); ++word) {
    for (std::uint32_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      const auto id = static_cast<TokenId>(word * 32 + static_cast<std::size_t>(std::countr_zero(bits)));
      if (std::isfinite(logits[static_cast<std::size_t>(id)]))
        order.emplace_back(-logits[static_cast<std::size_t>(id)], id);
    }
  }
  if (order.size() < 2) return std::nullopt;
  std::sort(order.begin(), order.end());
  const auto best = static_cast<std::size_t>(order.front().second);
  for (const auto& [negative, id] : std::span(order).subspan(1)) {
    if (agree(best, static_cast<std::size_t>(id))) continue;
    return Decision{best, static_cast<double>(negative - order.front().first)};
  }
  return std::nullopt;
}

bool AnswerWriter::agree(std::size_t best, std::size_t other) const {
  if (best == other || scores_) return best == other;
  const std::string one = tokenizer_.token_bytes(static_cast<TokenId>(best));
  const std::string two = tokenizer_.token_bytes(static_cast<TokenId>(other));
  return !one.empty() && !two.empty() && (one.starts_with(two) || two.starts_with(one));
}

ChosenToken AnswerWriter::choose(std::span<const float> logits, std::span<const TokenId> tokens, float entropy,
                                 std::vector<float>& scratch) {
  if (is_forced()) return {-1, entropy};
  const TokenMask allowed = is_constrained() ? matcher_->allowed() : TokenMask{};
  const TokenId id = sampler_.choose(logits, {tokens, result_.tokens}, allowed, scratch).id;
  if (id < 0 && is_constrained())
    throw std::runtime_error("no token of the model's vocabulary continues the answer within its constraint");
  return {id, entropy};
}

/// The tokens behind one that is not allowed would never be chosen.
Draft AnswerWriter::allowed_part(Draft draft) const {
  if (!is_constrained() || draft.match == 0) return draft;
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

/// A forced answer ends when all of its tokens have run: in the call that would choose the token after the last.
bool AnswerWriter::append(const ChosenToken& chosen, std::vector<TokenId>& tokens, bool tentative,
                          Clock::time_point submitted) {
  const bool forced = is_forced();
  if (choice().entropy != 0) entropy_.push_back(chosen.entropy);
  const TokenId id = forced ? request_.forced[std::min(result_.tokens.size(), request_.forced.size() - 1)]
                            : id_of(chosen, static_cast<std::size_t>(config_.vocabulary));
  if (!forced) sampler_.advance();
  if (first_token_ == Clock::time_point{}) {
    first_token_ = Clock::now();
    (tentative ? result_.tentative_ms : result_.ttft_ms) = milliseconds(first_token_ - submitted);
  }
  const auto& eos = config_.eos_tokens;
  if (forced ? result_.tokens.size() == request_.forced.size() : std::find(eos.begin(), eos.end(), id) != eos.end()) {
    reason_ = FinishReason::eos;
    return true;
  }
  tokens.push_back(id);
  result_.tokens.push_back(id);
  const std::string text = decoder_.push(id);
  text_length_.push_back((text_length_.empty() ? 0 : text_length_.back()) + text.size());
  const std::string certain = certain_text(text);
  result_.text += certain;
  const auto& receiver = tentative ? request_.callbacks.on_tentative_token : request_.callbacks.on_token;
  if (receiver) receiver(id, certain);
  if (stops_.found() || (thinking_ && thinking_->over())) {
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

void AnswerWriter::finish() {
  if (thinking_) {
    if (!thinking_->over()) result_.text += thinking_->push(decoder_.finish());
    result_.text += thinking_->finish();
    result_.thought = thinking_->begun();
    result_.thinking_rest = thinking_->rest();
    result_.tokens.resize(std::min(result_.tokens.size(), thinking_->tokens()));
  } else if (stops_.found()) {  // the tokens of the stop string are not part of the answer
    const auto kept =
        std::upper_bound(text_length_.begin(), text_length_.end(), stops_.length()) - text_length_.begin();
    result_.tokens.resize(static_cast<std::size_t>(kept));
    result_.confirmed_tokens = std::min(result_.confirmed_tokens, static_cast<std::int64_t>(result_.tokens.size()));
  } else {
    result_.text += stops_.push(decoder_.finish());
    result_.text += stops_.finish();
  }
  if (first_token_ != Clock::time_point{}) result_.decode_ms = milliseconds(Clock::now() - first_token_);
}

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
