// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/request_end.h"

#include <algorithm>

#include "engine/loop/kv_lookup.h"

namespace baton {
namespace {

std::int32_t begin_of(const std::vector<PromptPart>& prompt, std::size_t part) {
  std::int32_t begin = 0;
  for (std::size_t i = 0; i < part; ++i) begin += static_cast<std::int32_t>(prompt[i].tokens.size());
  return begin;
}

int hops_of(const Sequence& sequence, std::size_t part) {
  const PromptAssembly& assembly = sequence.prompt.assembly();
  return begin_of(sequence.request().prompt, part + 1) <= assembly.exact_length ? 0 : assembly.hops;
}

/// True when the part's KV, which the sequence computes, becomes a segment.
bool becomes_segment(const Sequence& sequence, std::size_t part) {
  const GenerationRequest& request = sequence.request();
  const PromptPart& text = request.prompt[part];
  return request.reuse.record && sequence.cache().layout().raw_keys && text.readers > 0 && !text.tokens.empty() &&
         !sequence.prompt.assembly().uses[part].from_segment &&
         begin_of(request.prompt, part) >= sequence.prompt.assembly().recordable();
}

}  // namespace

/// Some tokens of a sequence, whose KV becomes a segment.
struct KvKeeper::Kept {
  std::int32_t begin = 0;
  TokenText tokens;
  std::int64_t readers = 0;
  int hops = 0;
  std::string origin;
  std::span<const float> entropy;
  bool export_kv = false;  // some readers are engines of other models
};

/// Returns null when the cache holds none of the tokens or the store has no room.
SegmentHandle KvKeeper::keep(const KvCache& cache, Kept kept) {
  const std::int32_t n = std::min(static_cast<std::int32_t>(kept.tokens.size()), cache.length() - kept.begin);
  if (n < 1) return nullptr;
  auto segment = std::make_shared<Segment>(*parts_.backend, cache, kept.begin, n, std::move(kept.tokens));
  segment->hops = kept.hops;
  segment->origin = kept.origin;
  kept.entropy = kept.entropy.first(std::min(kept.entropy.size(), static_cast<std::size_t>(n)));
  segment->entropy.assign(kept.entropy.begin(), kept.entropy.end());
  SegmentHandle handle = parts_.store.add(segment, kept.readers);
  const bool exports = !parts_.device.host_memory;  // other engines can read host memory directly
  if (handle && kept.export_kv && exports) {
    try {
      parts_.store.export_kv(handle, segment->copy_to_host());
      parts_.backend->wait();
    } catch (const BackendError&) {  // readers of this model still have the segment
    }
  }
  return handle;
}

RunningText find_running_text(const SequenceList& running, std::uint64_t run, const TokenText& tokens) {
  for (const auto& sequence : running) {
    if (sequence->request().run != run) continue;
    const std::vector<PromptPart>& prompt = sequence->request().prompt;
    for (std::size_t part = 0; part < prompt.size(); ++part) {
      if (prompt[part].tokens == tokens && becomes_segment(*sequence, part))
        return {sequence.get(), part, hops_of(*sequence, part)};
    }
  }
  return {};
}

SegmentHandle KvKeeper::store_text(const RunningText& text) {
  Sequence& author = *text.author;
  const std::vector<PromptPart>& prompt = author.request().prompt;
  const PromptPart& part = prompt[text.part];
  std::vector<SegmentHandle>& made = author.result().segments;
  try {
    made.resize(prompt.size());
    if (!made[text.part]) {
      made[text.part] =
          keep(author.cache(),
               {begin_of(prompt, text.part), part.tokens, part.readers, text.hops, part.slot, {}, part.export_kv});
    }
    return made[text.part];
  } catch (const std::exception& error) {  // readers compute the text
    author.result().lost_kv = message_of(error);
    return nullptr;
  }
}

void KvKeeper::store_all(Sequence& sequence) {
  const GenerationRequest& request = sequence.request();
  const KvCache& cache = sequence.cache();
  const PromptAssembly& assembly = sequence.prompt.assembly();
  GenerationResult& result = sequence.result();
  result.segments.resize(request.prompt.size());
  if (!cache.layout().raw_keys) return;
  const std::span<const TokenId> tokens(sequence.state.tokens);
  for (std::size_t part = 0; part < request.prompt.size(); ++part) {
    if (becomes_segment(sequence, part)) store_text({&sequence, part, hops_of(sequence, part)});
  }
  try {
    if (request.reuse.record && request.output_readers > 0) {
      result.output = keep(cache, {sequence.state.prompt_length,
                                   result.tokens,
                                   request.output_readers,
                                   assembly.hops,
                                   {},
                                   sequence.answer.entropy(),
                                   request.export_output});
    }
    assembly.kv().learn(cache);
    const std::int32_t exact = assembly.hops == 0 ? cache.length() : assembly.exact_length;
    if (keeps_prefixes(request.reuse) && !has_imported_kv(request) && exact > 0) {
      // A prompt that will go on behind this one is computed ahead from the prefix.
      const std::int32_t least = request.keep_context ? 1 : PrefixCache::kWorthKeeping;
      parts_.prefixes.add(*parts_.backend, cache, tokens.first(static_cast<std::size_t>(exact)), least);
    }
    if (uses_store(parts_, request)) leave_in_store(sequence, std::min(exact, sequence.state.prompt_length));
    if (request.keep_context) result.context = keep_context(sequence, *parts_.backend, parts_.store, parts_.prefixes);
  } catch (const std::exception& error) {  // the answer is complete; only the reuse of its KV is lost
    result.lost_kv = message_of(error);
  }
}

/// The first `exact` tokens of the prompt go into the store, and those of its texts whose KV is exact and may be handed
/// over.
void KvKeeper::leave_in_store(const Sequence& sequence, std::int32_t exact) {
  const GenerationRequest& request = sequence.request();
  if (keeps_prefixes(request.reuse) && exact >= KvStore::kBlock) {
    const auto prompt = sequence.state.prompt().first(static_cast<std::size_t>(exact));
    PrefixCache::Match match = parts_.prefixes.find(prompt, exact);
    std::vector<KvStore::Piece> pieces;
    for (PrefixCache::Piece& one : match.pieces) pieces.push_back({std::move(one.segment), one.begin, one.count});
    parts_.disk->keep({prompt.begin(), prompt.begin() + match.length}, pieces);
  }
  const KvLayout& layout = sequence.cache().layout();
  if (!takes_running_texts(request.reuse, sequence.state.decision) || layout.received) return;
  for (std::size_t part = 0; part < request.prompt.size(); ++part) {
    const PromptPart& text = request.prompt[part];
    const std::int32_t begin = begin_of(request.prompt, part), n = static_cast<std::int32_t>(text.tokens.size());
    const bool taken = sequence.prompt.assembly().uses[part].from_segment;
    if (text.slot.empty() || taken || begin + n > exact || n < std::max(request.reuse.min_tokens, kMinFollowedTokens))
      continue;
    if (parts_.disk->knows_text(text.tokens.ids(), layout)) continue;
    const SegmentHandle& made = sequence.state.result.segments[part];
    std::shared_ptr<const Segment> segment = made ? parts_.store.peek(made) : nullptr;
    if (!segment) segment = std::make_shared<Segment>(*parts_.backend, sequence.cache(), begin, n, text.tokens);
    parts_.disk->keep_text(std::move(segment));
  }
}

void KvKeeper::give_texts(Sequence& ended) {
  const GenerationRequest& author = ended.request();
  const std::vector<SegmentHandle>& segments = ended.result().segments;
  for (const auto& next : parts_.work.waiting) {
    const std::vector<PromptPart>& prompt = next->request().prompt;
    if (next->request().run != author.run) continue;
    for (std::size_t part = 0; part < prompt.size(); ++part) {
      for (std::size_t from = 0; from < segments.size(); ++from) {
        if (!segments[from] || author.prompt[from].tokens != prompt[part].tokens) continue;
        if (takes_text(next->request(), next->state.decision, prompt[part], segments[from]->hops))
          give_segment(next->state.request, part, segments[from]);
      }
    }
  }
}

void KvKeeper::keep_for_followers(const Sequence& sequence) {
  const SequenceList& waiting = parts_.work.waiting;
  const bool followed = std::any_of(waiting.begin(), waiting.end(),
                                    [&](const auto& other) { return other->state.lead.id == sequence.id(); });
  const LivePrefix live = live_prefix(sequence);
  if (!followed || live.ready == 0) return;
  try {
    parts_.prefixes.add(*parts_.backend, *live.cache, live.tokens.first(static_cast<std::size_t>(live.ready)));
  } catch (const std::exception&) {  // the followers compute the beginning
  }
}

void give_segment(GenerationRequest& waiting, std::size_t part, SegmentHandle segment) {
  waiting.prompt[part].segment = std::move(segment);
  waiting.prompt[part].readers = 0;
}

void RequestEnd::end(const Sequence* sequence, FinishReason reason, const char* error) noexcept {
  SequenceList& running = parts_.running;
  const auto found = std::find_if(running.begin(), running.end(), [&](const auto& s) { return s.get() == sequence; });
  if (found != running.end()) end(running, found, reason, error);
}

void RequestEnd::end(SequenceList& list, SequenceList::iterator at, FinishReason reason, const char* error) noexcept {
  std::unique_ptr<Sequence> sequence = std::move(*at);
  list.erase(at);
  end(std::move(sequence), reason, error);
}

void RequestEnd::end(std::unique_ptr<Sequence> sequence, FinishReason reason, const char* error) noexcept {
  if (reason != FinishReason::eos) {
    sequence->keep_chosen();
    try_to([&] { keeper_.keep_for_followers(*sequence); });
  }
  parts_.ahead.forget(sequence->request().early);  // an early prompt that the request never took over
  try {
    sequence->close(reason, error);
  } catch (const std::exception& wrong) {
    reason = FinishReason::error;
    sequence->fail(message_of(wrong));
  }
  const std::vector<TokenId>* answer = reason == FinishReason::eos ? &sequence->result().tokens : nullptr;
  if (!try_to([&] { parts_.ahead.ended(sequence->id(), answer); })) parts_.ahead.clear();
  try_to([&] {
    const std::int32_t cached = sequence->cache_bytes() > 0 ? sequence->cache().length() : 0;  // may end in the prompt
    parts_.states.on_end(sequence->id(), sequence->result().tokens,
                         std::max(0, cached - sequence->state.prompt_length));
  });
  if (answer != nullptr) {
    try_to([&] { keeper_.store_all(*sequence); });
    try_to([&] { keeper_.give_texts(*sequence); });
  }
  if (MeasuredTurn* turn = sequence->state.measured.get(); turn != nullptr && !turn->has_answer())
    turn->set_answer(answer != nullptr ? *answer : std::vector<TokenId>());
  count_kv();
  try_to([&] { sequence->deliver(); });  // the host's own on_finished may throw
}

/// Whatever goes wrong here loses a measurement, never an answer.
void RequestEnd::make_probe_of(Sequence& turn) noexcept {
  turn.state.measured->has_probe = true;
  try_to([&] {
    const RequestState& state = turn.state;
    auto probe = parts_.measuring.probe_of({state.request, state.decision, state.result}, state.measured);
    if (!probe) return;
    ReuseDecision decision = as_asked(probe->reuse);
    const RequestId id = parts_.inbox.next_id();
    parts_.probes.push_back(
        std::make_unique<Sequence>(id, std::move(*probe), std::move(decision), *parts_.model, nullptr));
    parts_.probes.back()->state.probe = state.measured;
  });
}

/// A turn that did not end by itself, or too early, tells nothing.
void RequestEnd::drop_lost_probes() noexcept {
  for (SequenceList* list : {&parts_.running, &parts_.probes}) {
    const auto is_lost = [](const auto& one) {
      const MeasuredTurn* turn = one->state.probe.get();
      return turn != nullptr && turn->has_answer() && turn->compared() == 0;
    };
    for (auto at = list->begin(); (at = std::find_if(list->begin(), list->end(), is_lost)) != list->end();)
      end(*list, at, FinishReason::cancelled, "");
  }
}

bool RequestEnd::drop_probe() noexcept {
  SequenceList& running = parts_.running;
  const auto found =
      std::find_if(running.begin(), running.end(), [](const auto& one) { return one->state.probe != nullptr; });
  if (found == running.end()) return false;
  end(running, found, FinishReason::cancelled, "");
  return true;
}

void RequestEnd::count_kv() noexcept {
  bool busy = false;
  try_to([&] { busy = has_work_ahead(parts_); });
  parts_.counters.set_kv(kv_bytes(parts_.running) + parts_.ahead.bytes(), busy);
}

}  // namespace baton
