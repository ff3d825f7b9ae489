// SPDX-License-Identifier: Apache-2.0
#include <baton/distributions.h>
#include <baton/lab/perplexity.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/backend/make_backend.h"
#include "engine/model/forward.h"
#include "sdk/lab/bench_agents.h"
#include "sdk/src/internal.h"

namespace baton::inline v1::lab {
namespace {

constexpr std::int32_t kMinContext = 4;          // smaller chunks score no two tokens
constexpr std::int32_t kMaxStepRows = 512;       // of one step
constexpr std::int64_t kLogitsBytes = 64 << 20;  // of the logits of one step

/// Negative log-likelihoods of tokens, in nats.
class Likelihood {
 public:
  void add(std::span<const float> logits, TokenId token) {
    const double nll = log_sum_exp(logits) - logits[static_cast<std::size_t>(token)];
    sum_ += nll;
    squares_ += nll * nll;
    ++count_;
  }

  std::int64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0.0; }
  double perplexity() const { return std::exp(mean()); }
  /// The standard error of the mean, carried through exp.
  double error() const {
    if (count_ < 2) return 0.0;
    const auto n = static_cast<double>(count_);
    const double variance = squares_ / n - mean() * mean();
    return variance > 0 ? std::sqrt(variance / (n - 1)) * perplexity() : 0.0;
  }

 private:
  double sum_ = 0.0;
  double squares_ = 0.0;
  std::int64_t count_ = 0;
};

/// Runs a chunk with a fresh KV cache and adds the likelihoods of its second half.
class ChunkScorer {
 public:
  ChunkScorer(Backend& backend, const Model& model, std::int32_t context)
      : model_(model),
        forward_(backend, model),
        cache_(backend, model.kv_layout(), context),
        scored_rows_(static_cast<std::int32_t>(std::clamp<std::int64_t>(
            kLogitsBytes / (static_cast<std::int64_t>(sizeof(float)) * model.config.vocabulary), 1, kMaxStepRows))) {}

  void score(Likelihood& sum, std::span<const TokenId> chunk) {
    const auto last = static_cast<std::int32_t>(chunk.size()) - 1;  // nothing is read from this token's row
    const auto first = static_cast<std::int32_t>(chunk.size() / 2);
    cache_.truncate(0);
    for (std::int32_t begin = 0, end = 0; begin < last; begin = end) {
      const bool scored = begin >= first;
      end = scored ? std::min(last, begin + scored_rows_) : std::min(first, begin + kMaxStepRows);
      const std::span<const float> logits = run(chunk, begin, end, scored);
      const auto vocabulary = static_cast<std::size_t>(model_.config.vocabulary);
      for (std::int32_t at = begin; scored && at < end; ++at) {
        sum.add(logits.subspan(static_cast<std::size_t>(at - begin) * vocabulary, vocabulary),
                chunk[static_cast<std::size_t>(at) + 1]);
      }
    }
  }

 private:
  /// Returns [end - begin, V] when the rows are scored.
  std::span<const float> run(std::span<const TokenId> chunk, std::int32_t begin, std::int32_t end, bool scored) {
    rows_.clear();
    const std::int32_t index = rows_.add_cache(&cache_);
    for (std::int32_t at = begin; at < end; ++at) {
      rows_.add_row(index, at, chunk[static_cast<std::size_t>(at)]);
      if (scored) rows_.logits_rows.push_back(at - begin);
    }
    const std::span<const float> logits = forward_.run(rows_);
    cache_.commit(end);
    return logits;
  }

  const Model& model_;
  Forward forward_;
  KvCache cache_;
  StepRows rows_;
  std::int32_t scored_rows_;
};

/// The token that the tokenizer puts before a text, if any.
std::optional<TokenId> bos_of(const Tokenizer& tokenizer) {
  const std::vector<TokenId> plain = tokenizer.encode("a", SpecialTokens::as_text);
  const std::vector<TokenId> whole = tokenizer.encode_with_template("a");
  if (whole.empty() || plain.empty() || whole.front() == plain.front()) return std::nullopt;
  return whole.front();
}

void check(const PerplexityOptions& options) {
  if (options.context < kMinContext)
    throw InputError(fmt::format("context: expected {} or more, found {}", kMinContext, options.context));
  if (options.chunks < 0) throw InputError(fmt::format("chunks: expected 0 or more, found {}", options.chunks));
  if (options.dtype != "bf16" && options.dtype != "f32")
    throw InputError(fmt::format("dtype: expected bf16 or f32, found '{}'", options.dtype));
  check_activations(options.activations, options.dtype);
}

std::optional<PerplexityResult> measure(const PerplexityOptions& options) {
  const auto backend = make_backend({options.device, options.threads});
  const std::filesystem::path path = find_model(options.model);
  ModelOptions own;
  own.dtype = own.kv_dtype = options.dtype == "f32" ? DType::f32 : DType::bf16;
  own.activations = options.activations == "bf16" ? DType::bf16 : DType::f32;
  if (options.on_load) own.progress = [&](double share) { options.on_load(path.string(), share); };
  const auto model = open_model(*backend, path, own);
  if (options.context > model->options.context)
    throw InputError(
        fmt::format("context: {} tokens; the model's context is {}", options.context, model->options.context));

  std::vector<TokenId> ids = model->tokenizer->encode(options.text, SpecialTokens::as_text);
  const std::optional<TokenId> bos = bos_of(*model->tokenizer);
  if (bos) ids.insert(ids.begin(), *bos);
  const auto context = static_cast<std::size_t>(options.context);
  const auto whole = static_cast<std::int64_t>(ids.size() / context);
  if (whole == 0)
    throw InputError(fmt::format("text: expected {} tokens or more, one chunk; found {}", context, ids.size()));

  PerplexityResult result;
  result.tokens = static_cast<std::int64_t>(ids.size());
  result.begins_with_bos = bos.has_value();
  result.device = backend->info().description();
  const std::int64_t chunks = options.chunks > 0 ? std::min(options.chunks, whole) : whole;
  ChunkScorer scorer(*backend, *model, options.context);
  Likelihood sum;
  while (result.chunks < chunks && !options.stop.stop_requested()) {
    const std::span chunk = std::span(ids).subspan(static_cast<std::size_t>(result.chunks) * context, context);
    if (bos) chunk.front() = *bos;
    scorer.score(sum, chunk);
    ++result.chunks;
    if (options.on_chunk) options.on_chunk(result.chunks, chunks, sum.perplexity());
  }
  if (result.chunks == 0) return std::nullopt;
  result.nll = sum.mean();
  result.perplexity = sum.perplexity();
  result.error = sum.error();
  result.scored = sum.count();
  return result;
}

}  // namespace

std::optional<PerplexityResult> measure_perplexity(const PerplexityOptions& options) {
  check(options);
  return with_resource_errors([&] { return measure(options); });
}

}  // namespace baton::inline v1::lab
