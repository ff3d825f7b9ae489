// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/hand_over_measurement.h"

#include <baton/distributions.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>

namespace baton {
namespace {

/// Shared with the callbacks, which run on the engine's thread.
struct Batch {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<GenerationResult> results;
  std::vector<RequestId> ids;  // the calling thread's
  std::size_t finished = 0;
  std::int64_t decoded = 0;  // tokens of those that are not finished, and of those that are
  std::int64_t most = 0;     // tokens that all may decode

  double share() const {
    const auto all = static_cast<double>(results.size());
    const double tokens = most > 0 ? static_cast<double>(decoded) / static_cast<double>(most) : 0.0;
    return std::max(static_cast<double>(finished) / all, 0.95 * std::min(1.0, tokens));
  }
};

void submit(InferenceEngine& engine, const std::shared_ptr<Batch>& batch, std::size_t index,
            GenerationRequest request) {
  request.callbacks.on_token = [batch](TokenId, const std::string&) {
    const std::lock_guard lock(batch->mutex);
    ++batch->decoded;
    batch->changed.notify_all();
  };
  request.callbacks.on_finished = [batch, index,
                                   own = std::move(request.callbacks.on_finished)](GenerationResult result) {
    try {
      if (own) own(result);
    } catch (const std::exception& error) {
      result.reason = FinishReason::error;
      result.error = error.what();
    }
    const std::lock_guard lock(batch->mutex);
    batch->results[index] = std::move(result);
    ++batch->finished;
    batch->changed.notify_all();
  };
  batch->ids.push_back(engine.submit(std::move(request)));
}

}  // namespace

std::optional<std::vector<GenerationResult>> run_all(InferenceEngine& engine, std::vector<GenerationRequest> requests,
                                                     const std::stop_token& stop, const BatchProgress& progress) {
  const auto batch = std::make_shared<Batch>();
  batch->results.resize(requests.size());
  for (const auto& request : requests) batch->most += request.max_tokens;
  std::exception_ptr thrown;
  bool stopped = false;
  try {
    for (std::size_t i = 0; i < requests.size(); ++i) submit(engine, batch, i, std::move(requests[i]));
    for (double shown = 0.0; !stopped;) {
      {
        std::unique_lock lock(batch->mutex);
        const auto news = [&] { return batch->finished == batch->results.size() || batch->share() > shown; };
        stopped = !batch->changed.wait(lock, stop, news) || stop.stop_requested();
        if (batch->finished == batch->results.size()) break;
        shown = batch->share();
      }
      if (progress && !stopped) progress(shown);
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown || stopped) {
    for (const RequestId id : batch->ids) engine.cancel(id);
  }
  std::unique_lock lock(batch->mutex);
  batch->changed.wait(lock,
                      [&] { return batch->finished == batch->ids.size(); });  // callbacks use what the caller owns
  if (thrown) std::rethrow_exception(thrown);
  if (stopped) return std::nullopt;
  for (const GenerationResult& result : batch->results) {
    if (result.reason == FinishReason::error) throw EngineError(EngineError::Kind::invalid, result.error);
  }
  return std::move(batch->results);
}

namespace {

GenerationRequest request_of(std::vector<PromptPart> prompt, std::int32_t max_tokens, ReuseOptions reuse = {}) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.reuse = std::move(reuse);
  request.reuse.min_tokens = 1;
  request.reuse.prefix = false;
  return request;
}

/// Progress of a batch that is the part from `begin` to `end` of the work.
BatchProgress part_of(const BatchProgress& progress, double begin, double end) {
  if (!progress) return {};
  return [&progress, begin, end](double share) { progress(begin + share * (end - begin)); };
}

}  // namespace

HandOverMeasurement::HandOverMeasurement(LocalEngine& author, LocalEngine& reader,
                                         std::span<const CalibrationHandOver> hand_overs,
                                         const ProfilerOptions& options, std::int32_t reply_tokens)
    : author_(author),
      reader_(reader),
      options_(options),
      reply_tokens_(reply_tokens),
      last_(reader.model().config.layers - 1) {
  for (const CalibrationHandOver& one : hand_overs) cases_.push_back({one, {}, {}});
}

bool HandOverMeasurement::prepare(const BatchProgress& progress) {
  std::vector<GenerationRequest> requests;
  std::erase_if(cases_, [&](const Case& one) { return !fits(one.from.producer.size() + one.from.answer.size()); });
  for (const Case& one : cases_) requests.push_back(producer_request(one.from, options_.max_tokens));
  const auto answers = run_all(author_, std::move(requests), options_.stop, part_of(progress, 0.0, 0.8));
  if (!answers) return false;
  for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].from.answer = (*answers)[i].tokens;
  std::erase_if(cases_, [&](const Case& one) {
    const CalibrationHandOver& from = one.from;
    const auto reply = static_cast<std::size_t>(reply_tokens_);
    return from.answer.size() < static_cast<std::size_t>(options_.min_tokens) ||
           !fits(from.before.size() + from.answer.size() + from.after.size() + reply);
  });
  requests.clear();
  for (Case& one : cases_) {
    requests.push_back(request_of(prompt_of(one, nullptr), reply_tokens_));
    requests.back().callbacks.on_logits = [&full = one.full](std::span<const float> logits) {
      full.emplace_back(logits.begin(), logits.end());
    };
  }
  const auto replies = run_all(reader_, std::move(requests), options_.stop, part_of(progress, 0.8, 1.0));
  if (!replies) return false;
  for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].reply = (*replies)[i].tokens;
  return true;
}

std::optional<std::vector<std::vector<double>>> HandOverMeasurement::measure(std::span<const ReuseOptions> candidates,
                                                                             std::vector<std::vector<double>>* left,
                                                                             const BatchProgress& progress) {
  const auto segments = record(candidates.front(), static_cast<std::int64_t>(candidates.size()));
  if (!segments) return std::nullopt;
  std::vector<std::vector<double>> sums(candidates.size(), std::vector<double>(cases_.size(), 0.0));
  std::vector<GenerationRequest> requests;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Case& one = cases_[i];
      GenerationRequest request = request_of(prompt_of(one, (*segments)[i]), reply_tokens_, candidates[c]);
      request.forced = one.reply;
      request.callbacks.on_logits = [&sum = sums[c][i], &full = one.full,
                                     at = std::size_t{0}](std::span<const float> logits) mutable {
        if (at < full.size()) sum += divergence(full[at++], logits);
      };
      requests.push_back(std::move(request));
    }
  }
  const auto results = run_all(reader_, std::move(requests), options_.stop, progress);
  if (!results) return std::nullopt;
  for (const GenerationResult& result : *results) {
    for (const PartUse& use : result.uses) {
      if (!use.reason.empty())
        throw EngineError(EngineError::Kind::memory, "an answer's KV was not reused: " + use.reason);
    }
  }
  for (std::size_t c = 0; left != nullptr && c < candidates.size(); ++c) {
    left->emplace_back();
    for (std::size_t i = 0; i < cases_.size(); ++i)
      left->back().push_back((*results)[c * cases_.size() + i].guard_left);
  }
  for (std::vector<double>& of : sums) {
    for (std::size_t i = 0; i < cases_.size(); ++i)
      of[i] /= static_cast<double>(std::max<std::size_t>(1, cases_[i].full.size()));
  }
  return sums;
}

double HandOverMeasurement::mean_of(std::span<const double> divergences) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < divergences.size(); ++i)
    sum += divergences[i] * static_cast<double>(cases_[i].full.size());
  return sum / static_cast<double>(std::max<std::int64_t>(1, tokens()));
}

std::int64_t HandOverMeasurement::tokens() const {
  return std::accumulate(cases_.begin(), cases_.end(), std::int64_t{0}, [](std::int64_t sum, const Case& one) {
    return sum + static_cast<std::int64_t>(one.full.size());
  });
}

bool HandOverMeasurement::fits(std::size_t tokens) const {
  return tokens < static_cast<std::size_t>(std::min(author_.model().options.context, reader_.model().options.context));
}

std::vector<PromptPart> HandOverMeasurement::prompt_of(const Case& one, const SegmentHandle& segment) const {
  PromptPart answer{"answer", one.from.answer};
  if (between() && segment)
    answer.imported_kv = author_.exported_kv(segment);
  else
    answer.segment = segment;
  return consumer_prompt(one.from, std::move(answer));
}

/// Makes the answers' segments in one prefill each, with the hidden states at the input of the candidate's first layer.
std::optional<std::vector<SegmentHandle>> HandOverMeasurement::record(const ReuseOptions& candidate,
                                                                      std::int64_t readers) {
  const LayerRange& range = candidate.range;
  std::vector<GenerationRequest> requests;
  for (const Case& one : cases_) {
    PromptPart answer{"answer", one.from.answer, nullptr, readers};
    answer.export_kv = between();
    requests.push_back(request_of({{"", one.from.producer}, std::move(answer)}, 1));
    requests.back().reuse.record = true;
    requests.back().reuse.range = {range.start, range.start + 1, last_};
    if (range.is_group(last_ + 1)) {
      requests.back().reuse.method = candidate.method;
      requests.back().reuse.range = range;
    }
  }
  auto results = run_all(author_, std::move(requests), options_.stop);
  if (!results) return std::nullopt;
  std::vector<SegmentHandle> segments;
  for (GenerationResult& result : *results) {
    if (!result.segments.at(1)) throw EngineError(EngineError::Kind::memory, "no memory to keep an answer's KV");
    segments.push_back(std::move(result.segments[1]));
  }
  return segments;
}

}  // namespace baton
