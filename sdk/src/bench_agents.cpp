#include "sdk/src/bench_agents.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>

namespace baton::inline v1 {
namespace {

constexpr std::size_t kSeparator = 4;  // tokens around each reused text

/// The same everywhere: the standard's distributions are not.
std::vector<TokenId> random_tokens(std::uint64_t& state, std::size_t count, std::int32_t vocabulary) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocabulary));
  }
  return tokens;
}

}  // namespace

BenchAgents::BenchAgents(const BenchOptions& options, LayerRange range, std::int32_t vocabulary)
    : options_(options), range_(range) {
  std::uint64_t state = options.seed * 2 + 1;
  separator_ = random_tokens(state, kSeparator, vocabulary);
  reused_.push_back(random_tokens(state, static_cast<std::size_t>(options.question), vocabulary));
  for (int agent = 1; agent <= options.agents; ++agent) {
    roles_.push_back(random_tokens(state, static_cast<std::size_t>(options.prefix), vocabulary));
    if (agent < options.agents)
      reused_.push_back(random_tokens(state, static_cast<std::size_t>(options.output), vocabulary));
  }
  segments_.resize(reused_.size());
}

std::int64_t BenchAgents::length(int agent) const {
  return options_.prefix + options_.question + std::int64_t{agent - 1} * options_.output +
         std::int64_t{agent + 1} * static_cast<std::int64_t>(kSeparator);
}

/// Role, question, answers of the agents before; a separator behind each.
std::vector<PromptPart> BenchAgents::prompt(int agent, bool with_segments) const {
  std::vector<PromptPart> parts = {{{}, roles_[static_cast<std::size_t>(agent - 1)], nullptr, 0},
                                   {{}, separator_, nullptr, 0}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(agent); ++i) {
    PromptPart& part = parts.emplace_back();
    part.slot = i == 0 ? "question" : "answer";
    part.tokens = reused_[i];
    if (with_segments) part.segment = segments_[i];
    parts.push_back({{}, separator_, nullptr, 0});
  }
  return parts;
}

bool BenchAgents::prepare(internal::Engine& engine) {
  // One exact pass over the longest prompt gives the KV of every text that is handed over.
  GenerationRequest all;
  all.prompt = prompt(options_.agents, false);
  all.reuse.record = true;
  all.reuse.range = range_;
  for (PromptPart& part : all.prompt) {
    if (!part.slot.empty()) part.readers = INT32_MAX;
  }
  const std::vector<PromptPart> parts = all.prompt;
  const auto made = answer(engine, std::move(all));
  if (!made) return false;
  std::size_t next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].slot.empty()) continue;
    if (!made->segments[i])
      throw ResourceError(ResourceError::Kind::memory, "the memory for KV cannot hold the reused texts");
    segments_[next++] = made->segments[i];
  }
  for (const auto& role : roles_) {
    GenerationRequest request;
    request.prompt = {{{}, role, nullptr, 0}};
    request.reuse.method = "prefix";
    request.reuse.record = true;  // with the hidden states that relay wants
    request.reuse.range = range_;
    if (!answer(engine, std::move(request))) return false;
  }
  return true;
}

ReuseOptions BenchAgents::reuse(const std::string& method, int agent) const {
  ReuseOptions reuse;
  reuse.method = method;
  reuse.range = range_;
  reuse.min_tokens = 1;
  reuse.selection.share = options_.select;
  reuse.cacheblend_share = options_.select;
  const double tokens = options_.question + static_cast<double>(agent - 1) * options_.output;
  reuse.epic_tokens =
      std::max(1, static_cast<std::int32_t>(std::lround(options_.select * tokens / agent)));  // per segment
  const bool relays = method != "full" && method != "prefix";
  reuse.record = relays && agent < options_.agents;   // its answer would be handed over
  if (relays && agent == 1) reuse.method = "prefix";  // there is nothing to reuse yet
  // What one pass computed exactly must not be a prefix of the next: only the role texts are. ("prefix" takes prefixes
  // whatever this says.)
  if (reuse.method == "prefix") reuse.prefix = false;
  return reuse;
}

std::optional<BenchAgents::Pass> BenchAgents::run(internal::Engine& engine, const std::string& method,
                                                  int agent) const {
  Pass pass;
  GenerationRequest request;
  request.reuse = reuse(method, agent);
  request.prompt = prompt(agent, agent > 1);
  if (request.reuse.record) request.output_readers = options_.agents - agent;
  if (request.reuse.record && agent == 1) request.prompt[2].readers = options_.agents - 1;
  if (method == "full") {
    request.callbacks.on_logits = [&pass](std::span<const float> logits) {
      pass.logits.assign(logits.begin(), logits.end());
    };
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto result = answer(engine, std::move(request));
  if (!result) return std::nullopt;
  pass.wall_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  const PrefillTimes& times = result->prefill;
  BenchAgent& numbers = pass.numbers;
  numbers.agent = agent;
  numbers.prompt_tokens = result->prompt_tokens;
  numbers.ttft_ms = result->ttft_ms;
  numbers.kv_reuse_rate = 1.0 - static_cast<double>(result->kv_computed) / static_cast<double>(result->kv_entries);
  numbers.breakdown_ms = {times.match, times.copy, times.full_layers, times.detect, times.sparse_layers,
                          times.tail,  0.0};
  numbers.breakdown_ms.other = result->ttft_ms - (times.match + times.copy + times.full_layers + times.detect +
                                                  times.sparse_layers + times.tail);
  return pass;
}

/// Waits for the request's end; none when it was stopped.
std::optional<GenerationResult> BenchAgents::answer(internal::Engine& engine, GenerationRequest request) const {
  if (options_.stop.stop_requested()) return std::nullopt;
  request.max_tokens = 1;
  std::promise<GenerationResult> promise;
  request.callbacks.on_finished = [&promise](GenerationResult result) { promise.set_value(std::move(result)); };
  const RequestId id = engine.submit(std::move(request));
  const std::stop_callback on_stop(options_.stop, [&] { engine.cancel(id); });
  GenerationResult result = promise.get_future().get();
  if (result.reason == FinishReason::cancelled) return std::nullopt;
  if (result.reason == FinishReason::error) throw ResourceError(ResourceError::Kind::memory, result.error);
  return result;
}

}  // namespace baton::inline v1
