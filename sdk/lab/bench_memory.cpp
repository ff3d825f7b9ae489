// SPDX-License-Identifier: Apache-2.0
// Bytes that a method holds per token: BenchAgents::memory.
#include <algorithm>
#include <chrono>
#include <thread>

#include "sdk/lab/bench_agents.h"

namespace baton::inline v1 {

/// One short answer that is kept for later prompts, the way the method keeps it.
bool BenchAgents::remember(LocalEngine& engine, const Way& way, BenchMemory& memory) const {
  const int agent = options_.agents;
  const EngineStats before = engine.stats();
  GenerationRequest request;
  request.prompt = prompt(agent, agent > 1);
  std::vector<TokenId>& role = request.prompt.front().tokens;  // no prefix of what another method has left
  std::rotate(role.begin(), role.begin() + static_cast<std::ptrdiff_t>(way.method->name.size() % role.size()),
              role.end());
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
  if (way.method->ahead) {  // before anything of the same prompt is a prefix
    const EarlyId id = engine.prepare(all_but_last_text(agent));
    if (!wait_ahead(engine)) return std::nullopt;
    memory.ahead = static_cast<double>(engine.stats().kv_bytes - idle) / static_cast<double>(length(agent) + 1);
    engine.forget(id);
    while (engine.stats().kv_bytes > idle && !options_.stop.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (way.method->id != MethodId::full && !remember(engine, way, memory)) return std::nullopt;
  double bytes = 0, tokens = 0;
  for (const auto& [key, pool] : engine.anchors().all()) {
    if (!way.method->anchors || key.pool != learned_pool()) continue;
    for (const SharedAnchor& anchor : pool.anchors) {
      bytes += static_cast<double>(anchor->bytes()) - static_cast<double>(anchor->text_kv.size_bytes());
      tokens += anchor->length;
    }
  }
  if (tokens > 0) memory.anchor = bytes / tokens;
  return memory;
}

}  // namespace baton::inline v1
