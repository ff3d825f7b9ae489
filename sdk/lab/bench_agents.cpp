// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/bench_agents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <thread>

#include "engine/base/clock.h"
#include "engine/reuse/anchors/anchors.h"
#include "sdk/lab/anchors/learned_anchors.h"
#include "sdk/src/internal.h"

namespace baton::inline v1::lab {

namespace {

void check_number(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw InputError(fmt::format("{}: expected a value in [{}, {}], found {}", name, least, most, value));
}

void check_numbers(const char* name, const std::vector<int>& values, std::int64_t most) {
  if (values.empty()) throw InputError(fmt::format("{}: expected at least one value", name));
  for (const int value : values) check_number(name, value, 1, most);
}

}  // namespace

void check_name(const char* name, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw InputError(fmt::format("{}: unknown value '{}'; expected one of {}", name, value, fmt::join(known, ", ")));
}

void check_activations(const std::string& activations, const std::string& dtype) {
  check_name("activations", activations, {"f32", "bf16"});
  if (activations == "bf16" && dtype != "bf16")
    throw InputError(fmt::format("activations: bf16 has no effect with dtype {}; expected dtype bf16", dtype));
}

void check(const BenchOptions& options) {
  if (options.shape.empty() == options.model.empty()) throw InputError("shape: expected either a shape or a model");
  if (!options.shape.empty()) check_name("shape", options.shape, bench_shapes());
  if (options.layers != 0 && options.shape.empty())
    throw InputError("layers: only a shape can be measured with another number of layers");
  check_number("layers", options.layers, 0, 1024);
  check_number("agents", options.agents, 1, 32);
  check_numbers("prefix", options.prefix, 1 << 20);
  check_number("question", options.question, 1, 1 << 20);
  check_numbers("output", options.output, 1 << 20);
  check_number("repeat", options.repeat, 0, 1000);
  check_name("dtype", options.dtype, {"bf16", "f32"});
  check_activations(options.activations, options.dtype);
  if (!only_rates(options)) {
    for (const std::string& method : options.methods) check_name("methods", method, bench_methods());
  }
  if (options.row_methods != std::vector<std::string>{"none"}) {
    for (const std::string& method : options.row_methods) check_name("row_methods", method, bench_methods());
  }
  for (const int texts : options.learned) check_number("anchors", texts, 1, 1000);
  for (const int tokens : options.prefill) check_number("prefill", tokens, 1, 1 << 20);
  for (const auto& [rows, depth] : options.decode) {
    check_number("decode", rows, 1, 4096);
    check_number("decode", depth, 1, 1 << 20);
  }
  if (options.select.empty()) throw InputError("select: expected at least one value");
  for (const double select : options.select) {
    if (!(select > 0.0 && select <= 1.0))
      throw InputError(fmt::format("select: expected a value in (0, 1], found {}", select));
  }
}

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

std::unique_ptr<LearnedState> learned_state_of(const Method& method, [[maybe_unused]] std::uint64_t seed) {
  if (&method == &anchors_method()) return learned_anchors(seed);
  throw InputError(fmt::format("the bench cannot fill what method {} learns", method.name));
}

BenchAgents::BenchAgents(const BenchOptions& options, const Sizes& sizes, LayerRange range, std::int32_t vocabulary)
    : options_(options), sizes_(sizes), range_(range) {
  std::uint64_t state = (options.seed + static_cast<std::uint64_t>(sizes.index) * 1'000'003) * 2 + 1;
  separator_ = random_tokens(state, kSeparator, vocabulary);
  reused_.push_back(random_tokens(state, static_cast<std::size_t>(options.question), vocabulary));
  for (int agent = 1; agent <= options.agents; ++agent) {
    roles_.push_back(random_tokens(state, static_cast<std::size_t>(sizes.prefix), vocabulary));
    if (agent < options.agents)
      reused_.push_back(random_tokens(state, static_cast<std::size_t>(sizes.output), vocabulary));
  }
  last_answer_ = random_tokens(state, static_cast<std::size_t>(sizes.output), vocabulary);
  segments_.resize(reused_.size());
}

std::int64_t BenchAgents::length(int agent) const {
  return sizes_.prefix + options_.question + std::int64_t{agent - 1} * sizes_.output +
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

bool BenchAgents::prepare(InferenceEngine& engine) {
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
      throw ResourceError(ResourceError::Kind::memory, "the KV budget is too small for the reused texts");
    segments_[next++] = made->segments[i];
  }
  for (const auto& role : roles_) {
    GenerationRequest request;
    request.prompt = {{{}, role, nullptr, 0}};
    request.reuse.method = &prefix_method();
    request.reuse.record = true;  // with the hidden states that rectify wants
    request.reuse.range = range_;
    if (!answer(engine, std::move(request))) return false;
  }
  return true;
}

ReuseOptions BenchAgents::reuse(const Way& way, int agent) const {
  const double select = way.select > 0 ? way.select : options_.select.front();
  ReuseOptions reuse;
  reuse.method = way.method;
  reuse.range = needs_group(*way.method) ? LayerRange::group(range_.start, range_.end) : range_;
  reuse.min_tokens = 1;
  const double tokens = options_.question + static_cast<double>(agent - 1) * sizes_.output;
  if (way.method->recompute != nullptr) {
    const auto each = std::max(1, static_cast<std::int32_t>(std::lround(select * tokens / agent)));  // per segment
    way.method->recompute(reuse, select, each);
  }
  if (const auto found = learned_.find(way.method); found != learned_.end())
    found->second->use(reuse, way.learned, way.repeat);
  const bool relays = takes_segments(reuse);
  reuse.record = relays && agent < options_.agents;           // its answer would be handed over
  if (relays && agent == 1) reuse.method = &prefix_method();  // there is nothing to reuse yet
  // What one pass computed exactly must not be a prefix of the next: only the role texts are.
  if (always_reuses_prefixes(*reuse.method)) reuse.prefix = false;
  return reuse;
}

bool BenchAgents::learn(InferenceEngine& engine, const Method& method) {
  if (!learned_.contains(&method)) learned_[&method] = learned_state_of(method, options_.seed);
  for (int agent = 2; agent <= options_.agents; ++agent) {
    GenerationRequest request;
    request.reuse = reuse({&method}, agent);
    request.reuse.record = true;
    learned_.at(&method)->learn(request.reuse);
    request.reuse.prefix = false;  // what it computes must not be a prefix of what is measured
    request.prompt = prompt(agent, true);
    if (!answer(engine, std::move(request))) return false;
  }
  return true;
}

void BenchAgents::fill(LocalEngine& engine, const Way& way) {
  learned_.at(way.method)->fill(*engine.method_state(*way.method), way.learned, way.repeat);
}

/// Of the prompt, with all but what only the bench's own clock knows.
BenchAgent BenchAgents::numbers_of(const GenerationResult& result, int agent) {
  const PrefillTimes& times = result.prefill;
  const double parts = times.match + times.copy + times.full_layers + times.detect + times.sparse_layers + times.tail;
  const auto entries = static_cast<double>(result.kv_entries);
  BenchAgent numbers;
  numbers.agent = agent;
  numbers.prompt_tokens = result.prompt_tokens;
  numbers.ttft_ms = result.ttft_ms;
  numbers.kv_reuse_rate = 1.0 - static_cast<double>(result.kv_computed) / entries;
  numbers.ahead_rate = static_cast<double>(result.kv_ahead) / entries;
  numbers.breakdown_ms = {times.match,         times.copy, times.full_layers,     times.detect,
                          times.sparse_layers, times.tail, result.ttft_ms - parts};
  return numbers;
}

std::optional<BenchAgents::Pass> BenchAgents::run(InferenceEngine& engine, const Way& way, int agent) const {
  Pass pass;
  GenerationRequest request;
  request.reuse = reuse(way, agent);
  request.prompt = prompt(agent, agent > 1);
  if (request.reuse.record) request.output_readers = options_.agents - agent;
  if (request.reuse.record && agent == 1) request.prompt[2].readers = options_.agents - 1;
  if (way.method == &full_method()) {
    request.callbacks.on_logits = [&pass](std::span<const float> logits) {
      pass.logits.assign(logits.begin(), logits.end());
    };
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto result = answer(engine, std::move(request));
  if (!result) return std::nullopt;
  pass.wall_ms = milliseconds(std::chrono::steady_clock::now() - begin);
  pass.numbers = numbers_of(*result, agent);
  return pass;
}

/// What is known of an agent's prompt while another (from 1) decodes its answer as `request`.
EarlyPrompt BenchAgents::early(int agent, int decoding, RequestId request) const {
  EarlyPrompt early;
  early.complete = decoding == agent - 1;
  early.longest = static_cast<std::int32_t>(length(agent) + sizes_.output + 1);
  early.reuse = reuse({&lockstep_method()}, agent);
  int slot = 0;  // 0: the question
  for (PromptPart& part : prompt(agent, false)) {
    if (part.slot.empty()) {
      early.parts.push_back({std::move(part.tokens)});
    } else if (slot++ == decoding) {
      early.parts.push_back({{}, request});
      if (!early.complete) break;
    } else {
      early.parts.push_back({std::move(part.tokens)});
    }
  }
  return early;
}

std::optional<BenchAgents::Row> BenchAgents::run_row(InferenceEngine& engine, const Way& way) const {
  const bool ahead = computes_ahead(*way.method);
  Row row;
  std::vector<EarlyId> early(static_cast<std::size_t>(options_.agents) + 1, 0);
  const auto begin = std::chrono::steady_clock::now();
  auto ready = begin;  // the last input is complete
  std::optional<GenerationResult> result;
  for (int agent = 1; agent <= options_.agents; ++agent) {
    GenerationRequest request;
    request.prompt = prompt(agent, agent > 1);
    request.reuse = reuse(way, agent);
    if (request.reuse.record) request.output_readers = options_.agents - agent;
    request.forced = agent < options_.agents ? reused_[static_cast<std::size_t>(agent)] : last_answer_;
    request.early = early[static_cast<std::size_t>(agent)];
    std::chrono::steady_clock::time_point first{}, over{};
    request.callbacks.on_token = [&first](TokenId, const std::string&) {
      if (first == std::chrono::steady_clock::time_point{}) first = std::chrono::steady_clock::now();
    };
    request.callbacks.on_finished = [&over](const GenerationResult&) { over = std::chrono::steady_clock::now(); };
    result = finish(engine, std::move(request), [&](RequestId id) {
      for (int later = agent + 1; ahead && later <= options_.agents; ++later) {
        EarlyPrompt now = this->early(later, agent, id);
        EarlyId& known = early[static_cast<std::size_t>(later)];
        if (known == 0) {
          known = engine.prepare(std::move(now));
        } else {
          engine.update(known, std::move(now.parts), now.complete);
        }
      }
    });
    if (!result) break;
    BenchAgent& numbers = row.agents.emplace_back(numbers_of(*result, agent));
    numbers.ttft_ms = milliseconds(first - ready);
    numbers.decode_ms_per_token = result->decode_ms / sizes_.output;
    numbers.breakdown_ms = {};
    numbers.breakdown_ms.match = result->prefill.match;
    numbers.breakdown_ms.copy = result->prefill.copy;
    numbers.breakdown_ms.tail = numbers.ttft_ms - result->prefill.match - result->prefill.copy;
    ready = over;
  }
  row.wall_ms = milliseconds(std::chrono::steady_clock::now() - begin);
  for (const EarlyId id : early) engine.forget(id);
  if (!result) return std::nullopt;
  return row;
}

EarlyPrompt BenchAgents::all_but_last_text(int agent) const {
  EarlyPrompt before;
  before.longest = static_cast<std::int32_t>(length(agent) + 1);
  before.reuse = reuse({&lockstep_method()}, agent);
  const std::vector<PromptPart> parts = prompt(agent, false);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) before.parts.push_back({parts[i].tokens});
  return before;
}

/// Until nothing is left to be computed ahead; false when it was stopped.
bool BenchAgents::wait_ahead(InferenceEngine& engine) const {
  while (engine.stats().busy_ahead && !options_.stop.stop_requested())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return !options_.stop.stop_requested();
}

std::optional<BenchAgent> BenchAgents::text_pass(InferenceEngine& engine, int agent) const {
  GenerationRequest request;
  request.prompt = prompt(agent, false);
  request.reuse = reuse({&lockstep_method()}, agent);
  request.early = engine.prepare(all_but_last_text(agent));
  wait_ahead(engine);
  const auto result = answer(engine, std::move(request));
  if (!result) return std::nullopt;
  return numbers_of(*result, agent);
}

std::optional<GenerationResult> BenchAgents::answer(InferenceEngine& engine, GenerationRequest request) const {
  request.max_tokens = 1;
  return finish(engine, std::move(request), [](RequestId) {});
}

/// Waits for the request's end; none when it was stopped.
std::optional<GenerationResult> BenchAgents::finish(InferenceEngine& engine, GenerationRequest request,
                                                    const std::function<void(RequestId)>& on_submit) const {
  if (options_.stop.stop_requested()) return std::nullopt;
  std::promise<GenerationResult> promise;
  request.callbacks.on_finished = [&promise, own = std::move(request.callbacks.on_finished)](GenerationResult result) {
    if (own) own(result);
    promise.set_value(std::move(result));
  };
  const RequestId id = engine.submit(std::move(request));
  on_submit(id);
  const std::stop_callback on_stop(options_.stop, [&] { engine.cancel(id); });
  GenerationResult result = promise.get_future().get();
  if (result.reason == FinishReason::cancelled) return std::nullopt;
  if (result.reason == FinishReason::error) throw ResourceError(ResourceError::Kind::memory, result.error);
  return result;
}

// Bytes that a method holds per token: BenchAgents::memory.

/// One short answer that is kept for later prompts, the way the method keeps it.
bool BenchAgents::remember(LocalEngine& engine, const Way& way, BenchMemory& memory) const {
  const int agent = options_.agents;
  const EngineStats before = engine.stats();
  GenerationRequest request;
  request.prompt = prompt(agent, agent > 1);
  std::vector<TokenId> role = request.prompt.front().tokens;  // no prefix of what another method has left
  std::rotate(role.begin(), role.begin() + static_cast<std::ptrdiff_t>(way.method->name.size() % role.size()),
              role.end());
  request.prompt.front().tokens = std::move(role);
  request.reuse = reuse(way, agent);
  request.reuse.record = takes_segments(request.reuse);
  request.reuse.prefix = true;
  request.output_readers = 1;
  constexpr int kAnswer = 8;
  request.forced.assign(last_answer_.begin(), last_answer_.begin() + std::min(kAnswer, sizes_.output));
  const auto answered = static_cast<std::int64_t>(request.forced.size());
  request.callbacks.on_prefilled = [&](const GenerationResult&) {
    memory.cache_recording = static_cast<double>(engine.stats().kv_bytes - before.kv_bytes) /
                             static_cast<double>(length(agent) + answered + 1);
  };
  const auto result = finish(engine, std::move(request), [](RequestId) {});
  if (!result) return false;
  if (const auto kept = result->output ? engine.segment(result->output) : nullptr) {
    const double tokens = kept->length();
    const ConstTensorView hidden = kept->hidden();
    const auto hidden_bytes =
        static_cast<double>(hidden.rows * hidden.cols) * static_cast<double>(size_of(hidden.dtype));
    const auto bytes = static_cast<double>(kept->bytes());
    memory.hidden = hidden.data == nullptr ? 0.0 : hidden_bytes / tokens;
    memory.received = static_cast<double>(kept->received().size_bytes()) / tokens;
    memory.entropy = static_cast<double>(kept->entropy.size() * sizeof(float)) / tokens;
    memory.ids = sizeof(TokenId);
    memory.keys_values = (bytes - static_cast<double>(kept->tokens().size() * sizeof(TokenId))) / tokens -
                         memory.hidden - memory.received - memory.entropy;
  } else if (!takes_segments(reuse(way, agent))) {  // the whole prompt is a prefix now
    memory.ids = sizeof(TokenId);
    memory.keys_values = static_cast<double>(engine.stats().segments.bytes - before.segments.bytes) /
                             static_cast<double>(length(agent) + answered) -
                         memory.ids;
  }
  return true;
}

std::optional<BenchMemory> BenchAgents::memory(LocalEngine& engine, const Way& way) const {
  BenchMemory memory{std::string(way.method->name)};
  const int agent = options_.agents;
  const std::int64_t idle = engine.stats().kv_bytes;
  GenerationRequest request;
  request.prompt = prompt(agent, agent > 1);
  request.reuse = reuse(way, agent);
  request.callbacks.on_prefilled = [&](const GenerationResult&) {
    memory.cache = static_cast<double>(engine.stats().kv_bytes - idle) / static_cast<double>(length(agent) + 1);
  };
  if (!answer(engine, std::move(request))) return std::nullopt;
  if (computes_ahead(*way.method)) {  // before anything of the same prompt is a prefix
    const EarlyId id = engine.prepare(all_but_last_text(agent));
    if (!wait_ahead(engine)) return std::nullopt;
    memory.ahead = static_cast<double>(engine.stats().kv_bytes - idle) / static_cast<double>(length(agent) + 1);
    engine.forget(id);
    while (engine.stats().kv_bytes > idle && !options_.stop.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (way.method != &full_method() && !remember(engine, way, memory)) return std::nullopt;
  if (const auto found = learned_.find(way.method); found != learned_.end())
    memory.learned = found->second->bytes_per_token(*engine.method_state(*way.method));
  return memory;
}

}  // namespace baton::inline v1::lab
