// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/hand_over.h"

#include <algorithm>

namespace baton {

void hand_over(Sequence& sequence, Backend& backend, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors) {
  const GenerationRequest& request = sequence.request();
  const KvCache& cache = sequence.cache();
  const PromptAssembly& assembly = sequence.assembly();
  GenerationResult& result = sequence.result();
  result.segments.resize(request.prompt.size());
  if (!cache.layout().raw_keys) return;
  const std::span<const TokenId> tokens(sequence.tokens());
  const bool lends = !backend.info().host_memory;  // other engines can read host memory directly
  bool lent = false;
  const auto keep = [&](std::int32_t begin, std::vector<TokenId> ids, std::int64_t readers, int hops,
                        const std::string& origin, std::span<const float> entropy, bool elsewhere) -> SegmentHandle {
    const std::int32_t n = std::min(static_cast<std::int32_t>(ids.size()), cache.length() - begin);
    if (n < 1) return nullptr;
    auto segment = std::make_shared<Segment>(backend, cache, begin, n, std::move(ids));
    segment->hops = hops;
    segment->origin = origin;
    entropy = entropy.first(std::min(entropy.size(), static_cast<std::size_t>(n)));
    segment->entropy.assign(entropy.begin(), entropy.end());
    SegmentHandle handle = store.add(segment, readers);
    if (handle && elsewhere && lends) {
      try {
        store.lend(handle, segment->copy_to_host());
        lent = true;
      } catch (const BackendError&) {  // readers of this model still have the segment
      }
    }
    return handle;
  };
  try {
    std::int32_t at = 0;
    for (std::size_t i = 0; request.reuse.record && i < request.prompt.size(); ++i) {
      const PromptPart& part = request.prompt[i];
      const std::int32_t begin = at;
      at += static_cast<std::int32_t>(part.tokens.size());
      if (part.readers == 0 || part.tokens.empty() || assembly.uses[i].from_segment) continue;
      if (begin < assembly.recordable()) continue;
      result.segments[i] = keep(begin, part.tokens, part.readers, at <= assembly.exact_length ? 0 : assembly.hops,
                                part.slot, {}, part.elsewhere);
    }
    if (request.reuse.record && request.output_readers > 0) {
      result.output = keep(sequence.prompt_length(), result.tokens, request.output_readers, assembly.hops, {},
                           sequence.entropy(), request.output_elsewhere);
    }
    if (lent) backend.wait();
    if (assembly.anchor_turn().learning) anchors.learn(assembly.anchor_turn(), cache, request.reuse.anchors);
    if (keeps_prefixes(request.reuse)) {
      const std::int32_t exact = assembly.hops == 0 ? cache.length() : assembly.exact_length;
      if (exact > 0) prefixes.add(backend, cache, tokens.first(static_cast<std::size_t>(exact)));
    }
  } catch (const std::exception&) {
    // The answer is complete; only the reuse of its KV is lost.
  }
}

}  // namespace baton
