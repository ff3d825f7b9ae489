#include "engine/sequence.h"

#include <algorithm>

namespace baton {
namespace {

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

std::string name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::eos: return "eos";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "unknown";
}

Sequence::Sequence(RequestId id, GenerationRequest request, const Model& model)
    : id_(id),
      request_(std::move(request)),
      model_(model),
      sampler_(request_.sampling),
      decoder_(*model.tokenizer),
      stops_(request_.stop),
      submitted_(Clock::now()) {
  for (const PromptPart& part : request_.prompt) tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
  prompt_length_ = static_cast<std::int32_t>(tokens_.size());
  tokens_.reserve(tokens_.size() + static_cast<std::size_t>(request_.max_tokens));
  result_.prompt_tokens = prompt_length_;
  result_.kv_entries = static_cast<std::int64_t>(prompt_length_) * model.config.layers;
}

void Sequence::on_step_begin(Clock::time_point now) {
  if (first_step_ != Clock::time_point{}) return;
  first_step_ = now;
  result_.queue_ms = milliseconds(now - submitted_);
}

bool Sequence::advance(std::span<float> logits) {
  const bool first = result_.tokens.empty() && first_token_ == Clock::time_point{};
  if (first) {
    result_.prefill_ms = milliseconds(Clock::now() - first_step_);
    result_.kv_computed = result_.kv_entries;
    if (request_.callbacks.on_prefilled) request_.callbacks.on_prefilled();
  }
  const TokenId id = sampler_.sample(logits, tokens_);
  if (first) {
    first_token_ = Clock::now();
    result_.ttft_ms = milliseconds(first_token_ - submitted_);
  }
  const auto& eos = model_.config.eos_tokens;
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
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
  if (static_cast<std::int32_t>(result_.tokens.size()) >= request_.max_tokens) {
    reason_ = FinishReason::length;
    return true;
  }
  return false;
}

void Sequence::emit(TokenId id, const std::string& text) {
  const std::string certain = stops_.push(text);
  result_.text += certain;
  if (request_.callbacks.on_token) request_.callbacks.on_token(id, certain);
}

void Sequence::drop_tokens_after_stop() {
  const auto kept = std::upper_bound(text_length_.begin(), text_length_.end(), stops_.length()) - text_length_.begin();
  result_.tokens.resize(static_cast<std::size_t>(kept));
}

void Sequence::finish(FinishReason reason, const std::string& error) {
  result_.reason = reason == FinishReason::eos ? reason_ : reason;
  result_.error = error;
  if (stops_.found()) {
    drop_tokens_after_stop();
  } else {
    result_.text += stops_.push(decoder_.finish());
    result_.text += stops_.finish();
  }
  if (first_token_ != Clock::time_point{}) result_.decode_ms = milliseconds(Clock::now() - first_token_);
  cache_.reset();
  const auto on_finished = std::move(request_.callbacks.on_finished);
  if (on_finished) on_finished(std::move(result_));
}

}  // namespace baton
