// SPDX-License-Identifier: Apache-2.0
// An engine that answers from a script: a function from the prompt's text to an answer with delays and failures. It
// keeps the contract of engine/engine.h: callbacks on its own thread, in order, on_finished exactly once.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/support/toy_model.h"

namespace baton::test {

struct Scripted {
  std::string text;
  FinishReason reason = FinishReason::eos;
  std::string error = {};
  std::chrono::microseconds prefill{0};
  std::chrono::microseconds per_token{0};
  std::string refused = {};                           // submit throws EngineError with this
  std::vector<TokenId> tokens = {};                   // instead of the bytes of the text
  std::vector<double> choices = {};                   // probabilities
  std::string lost_kv = {};                           // GenerationResult::lost_kv
  EngineError::Kind why = EngineError::Kind::memory;  // it is refused
};

class ScriptedEngine final : public InferenceEngine {
 public:
  /// `script` is asked once per submit, under a lock, with the whole prompt as text.
  using Script = std::function<Scripted(const std::string& prompt)>;

  explicit ScriptedEngine(Script script, std::shared_ptr<const Model> model = toy_model())
      : script_(std::move(script)), model_(std::move(model)), thread_([this] { loop(); }) {}

  ~ScriptedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void read_vocabulary(const std::stop_token& stop) override {
    if (on_vocabulary) on_vocabulary(stop);
  }

  RequestId submit(GenerationRequest request) override {
    const std::lock_guard lock(mutex_);
    std::vector<TokenId> ids;
    for (const PromptPart& part : request.prompt) ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
    const std::string prompt = model_->tokenizer->decode(ids, false);
    prompts.push_back(prompt);
    seeds.push_back(request.sampling.seed);
    constraints.push_back(request.constraint);
    choices.push_back(request.choices);
    if (info_.tokens_of(ids.size()) >= info_.context && info_.context > 0)
      throw EngineError(EngineError::Kind::too_long,
                        "the prompt has " + std::to_string(ids.size()) + " tokens, which do not fit the context");
    Scripted answer = script_(prompt);
    if (!answer.refused.empty()) throw EngineError(answer.why, answer.refused);
    Sequence sequence;
    requests.push_back(request);
    requests.back().callbacks = {};
    sequence.request = std::move(request);
    sequence.prompt_tokens = info_.tokens_of(ids.size());
    sequence.tokens =
        answer.tokens.empty() ? model_->tokenizer->encode(answer.text, SpecialTokens::as_text) : answer.tokens;
    if (sequence.request.thinking) think(sequence, answer);
    sequence.answer = std::move(answer);
    sequence.submitted = std::chrono::steady_clock::now();
    sequence.next = sequence.submitted + sequence.answer.prefill;
    sequences_.emplace(++last_id_, std::move(sequence));
    most_at_once = std::max(most_at_once, sequences_.size());
    wake_.notify_one();
    return last_id_;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) return;
    at->second.cancelled = true;
    wake_.notify_one();
  }

  EarlyId prepare(EarlyPrompt) override { return 0; }
  void update(EarlyId, std::vector<EarlyPart>, bool) override {}
  void forget(EarlyId) override {}

  std::shared_ptr<const Segment> exported_kv(const SegmentHandle&) const override { return nullptr; }
  const ModelText& text() const override { return *model_; }
  const EngineInfo& info() const override { return info_; }
  /// Before the first request: so many ids of its tokenizer are a token.
  void set_ids_per_token(std::int32_t ids) { info_.ids_per_token = ids; }
  EngineStats stats() const override { return {.weights_bytes = 1000, .kv_peak_bytes = 2000}; }

  /// Requests that have not finished.
  std::size_t open() const {
    const std::lock_guard lock(mutex_);
    return sequences_.size();
  }

  std::function<void(const std::stop_token& stop)> on_vocabulary;  // set before the run

  // For the tests to look at once their runs are over.
  std::vector<GenerationRequest> requests;  // in the order of submit, without callbacks
  std::vector<std::string> prompts;
  std::vector<std::uint64_t> seeds;
  std::vector<std::shared_ptr<const Grammar>> constraints;
  std::vector<std::vector<std::vector<TokenId>>> choices;
  std::size_t most_at_once = 0;

 private:
  struct Sequence {
    GenerationRequest request;
    Scripted answer;
    std::vector<TokenId> tokens;
    std::size_t done = 0;
    std::int64_t prompt_tokens = 0;
    std::optional<ThinkingReader> thinking;
    std::string thought;
    bool prefilled = false;
    bool cancelled = false;
    std::chrono::steady_clock::time_point submitted, next;
  };

  /// Leaves the tokens of the thinking, as an engine does.
  void think(Sequence& sequence, Scripted& answer) const {
    sequence.thinking.emplace(*sequence.request.thinking);
    std::size_t count = 0;
    while (count < sequence.tokens.size() && !sequence.thinking->over() &&
           static_cast<std::int32_t>(count) < sequence.request.max_tokens) {
      sequence.thought += sequence.thinking->push(model_->tokenizer->decode({&sequence.tokens[count], 1}, false));
      ++count;
    }
    sequence.thought += sequence.thinking->finish();
    answer.reason = sequence.thinking->over()        ? FinishReason::stop
                    : count < sequence.tokens.size() ? FinishReason::length
                                                     : FinishReason::eos;
    if (sequence.thinking->ended()) answer.reason = FinishReason::stop;
    sequence.tokens.resize(sequence.thinking->tokens());
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      auto due = sequences_.end();
      for (auto at = sequences_.begin(); at != sequences_.end(); ++at) {
        if (closing_ || at->second.cancelled) at->second.next = at->second.submitted;
        if (due == sequences_.end() || at->second.next < due->second.next) due = at;
      }
      if (due == sequences_.end()) {
        if (closing_) return;
        wake_.wait(lock);
      } else if (due->second.next > std::chrono::steady_clock::now()) {
        wake_.wait_until(lock, due->second.next);
      } else {
        advance(due, lock);
      }
    }
  }

  /// One event of one sequence, its callback without the lock. Only this thread erases, so the iterator stays good.
  void advance(std::map<RequestId, Sequence>::iterator at, std::unique_lock<std::mutex>& lock) {
    Sequence& sequence = at->second;
    const bool cut = closing_ || sequence.cancelled;
    if (!cut && !sequence.prefilled) {
      sequence.prefilled = true;
      sequence.next += sequence.answer.per_token;
      lock.unlock();
      GenerationResult so_far;
      so_far.kv_entries = so_far.kv_computed = sequence.prompt_tokens * model_->config.layers;
      if (sequence.request.callbacks.on_prefilled) sequence.request.callbacks.on_prefilled(so_far);
      lock.lock();
      return;
    }
    if (!cut && sequence.done < sequence.tokens.size()) {
      const TokenId id = sequence.tokens[sequence.done++];
      sequence.next += sequence.answer.per_token;
      lock.unlock();
      if (sequence.request.callbacks.on_token) {
        sequence.request.callbacks.on_token(id, model_->tokenizer->token_bytes(id));
      }
      lock.lock();
      return;
    }
    GenerationResult result;
    result.reason = cut ? FinishReason::cancelled : sequence.answer.reason;
    result.tokens.assign(sequence.tokens.begin(), sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.done));
    result.text = model_->tokenizer->decode(result.tokens, true);
    if (sequence.thinking) {
      result.text = sequence.thought;
      result.thought = sequence.thinking->begun();
      result.thinking_rest = sequence.thinking->rest();
    }
    result.error = sequence.answer.error;
    result.lost_kv = sequence.answer.lost_kv;
    result.choices = sequence.answer.choices;
    result.prompt_tokens = sequence.prompt_tokens;
    result.kv_entries = result.kv_computed = sequence.prompt_tokens * model_->config.layers;
    result.decode_ms = static_cast<double>(sequence.done);
    const GenerationCallbacks callbacks = std::move(sequence.request.callbacks);
    sequences_.erase(at);
    lock.unlock();
    if (callbacks.on_finished) callbacks.on_finished(std::move(result));
    lock.lock();
  }

  const Script script_;
  const std::shared_ptr<const Model> model_;
  EngineInfo info_{"scripted", "no device", 1, model_->options.context, kv_format_of(*model_)};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<RequestId, Sequence> sequences_;
  RequestId last_id_ = 0;
  bool closing_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace baton::test
