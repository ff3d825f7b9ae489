// SPDX-License-Identifier: Apache-2.0
// The engine's thread: cancels and admits requests.
#include "engine/loop/contexts.h"
#include "engine/loop/engine_core.h"
#include "engine/loop/hand_over.h"

namespace baton {
namespace {

/// A part of a waiting prompt gets KV that another sequence has computed.
void give_segment(Sequence& waiting, std::size_t part, SegmentHandle segment) {
  waiting.state.request.prompt[part].segment = std::move(segment);
  waiting.state.request.prompt[part].readers = 0;
}

}  // namespace

std::int64_t EngineCore::free_bytes() const {
  return waiting_.empty() ? options_.kv_budget_bytes - kv_bytes() - ahead_.bytes() : 0;
}

void EngineCore::apply_cancels() {
  while (!cancelling_.empty()) {
    const RequestId id = cancelling_.back();
    cancelling_.pop_back();
    for (auto* list : {&running_, &waiting_}) {
      const auto found = std::find_if(list->begin(), list->end(), [&](const auto& s) { return s->id() == id; });
      if (found != list->end()) end(*list, found, FinishReason::cancelled, "");
    }
  }
}

/// Requests start in the order of their arrival, except those that follow a prompt that is being prefilled: they wait
/// for it, and count towards the limits as if they ran, so that no later request takes their place.
void EngineCore::admit() {
  std::int64_t reserved = 0;  // bytes of the requests that follow
  std::size_t following = 0;
  while (following < waiting_.size()) {
    if (static_cast<std::int32_t>(running_.size() + following) >= options_.max_sequences && !drop_probe()) return;
    Sequence& next = *waiting_[following];
    const EarlyId early = next.request().early;
    const auto bytes = static_cast<std::int64_t>(bytes_for(next.request(), next.state.max_positions()));
    if (kv_bytes() + reserved + bytes > options_.kv_budget_bytes && drop_probe()) continue;
    if (kv_bytes() + reserved + bytes > options_.kv_budget_bytes) return;  // the request waits until others end
    if (follows(next) || follows_texts(next)) {
      reserved += bytes;
      ++following;
      continue;
    }
    const bool second = begins_tentatively(next);  // its early prompt stays, next to the request's own cache
    const std::int64_t own = second ? 0 : ahead_.bytes_of(early);  // taken over by the request, or evicted
    while (kv_bytes() + ahead_.bytes() - own + std::max(bytes, own) > options_.kv_budget_bytes) {
      if (!drop_probe() && !ahead_.evict_last(second ? 0 : early)) break;
    }
    const auto at = waiting_.begin() + static_cast<std::ptrdiff_t>(following);
    std::vector<float> logits;
    try {
      logits = start(next);
    } catch (const std::exception& error) {
      if (drop_probe() || ahead_.evict_last(0)) continue;
      if (!running_.empty()) return;
      end(waiting_, at, FinishReason::error, message_of(error));
      continue;
    }
    const bool copied = next.prompt.assembly().placed_tokens() > 0;
    running_.push_back(std::move(*at));
    waiting_.erase(at);
    count_kv();
    const Part first{running_.back().get(), 1};
    if (!logits.empty()) sample({&first, 1}, logits);
    // Copying KV lengthens the step, so sequences that decode wait for one copy at a time.
    if (copied && std::any_of(running_.begin(), running_.end(), [](const auto& one) { return one->decoding(); }))
      return;
  }
}

std::vector<LivePrefix> EngineCore::running_prefixes() const {
  std::vector<LivePrefix> live;
  for (const auto& sequence : running_) {
    if (const LivePrefix one = live_prefix(*sequence); one.cache != nullptr) live.push_back(one);
  }
  return live;
}

/// Returns true while a request waits for the beginning that it has in common with a running prompt.
bool EngineCore::follows(Sequence& next) {
  const GenerationRequest& request = next.request();
  if (!takes_prefixes(request.reuse)) return false;
  const std::vector<LivePrefix> live = running_prefixes();
  if (const Lead lead = next.state.lead; lead.id != 0) {
    const auto found = std::find_if(live.begin(), live.end(), [&](const LivePrefix& one) { return one.id == lead.id; });
    if (found != live.end() && found->ready < lead.length) return true;
  }
  const auto prompt = next.state.prompt();
  const std::int32_t longest = max_prefix(request);
  Lead lead = lead_of(live, prompt, longest, 0);
  if (lead.id != 0) {  // only now, since the lookup compares the prompt with all stored prefixes
    const std::int32_t available = std::max(
        {prefixes_.length(prompt), ahead_.computed(request.early, prompt), context_length(request, prompt, store_)});
    lead = lead_of(live, prompt, longest, available);
  }
  next.state.lead = lead;
  return lead.id != 0;
}

/// Returns the number of first tokens whose KV the prompt would begin with now.
std::int32_t EngineCore::known_beginning(const Sequence& next) {
  const GenerationRequest& request = next.request();
  const auto prompt = next.state.prompt();
  std::int32_t length = std::max(ahead_.computed(request.early, prompt), context_length(request, prompt, store_));
  if (!takes_prefixes(request.reuse)) return length;
  const std::int32_t longest = max_prefix(request);
  length = std::max(length, std::min(prefixes_.length(prompt), longest));
  for (const LivePrefix& one : running_prefixes())
    length = std::max(length, one.common(prompt, std::min(one.ready, longest)));
  return length;
}

/// True when the request takes this part's KV from a prompt that computes the same text, `hops` hand-overs away from
/// exact KV.
bool EngineCore::takes_text(const GenerationRequest& request, const PromptPart& part, int hops) {
  const ReuseOptions& reuse = request.reuse;
  if (request.run == 0 || !takes_segments(reuse) || reuse.method->anchors || reads_attention(reuse)) return false;
  if (part.slot.empty() || part.segment || part.imported_kv) return false;
  if (reuse.max_hops > 0 && hops >= reuse.max_hops) return false;
  return static_cast<std::int32_t>(part.tokens.size()) >= std::max(reuse.min_tokens, kMinFollowedTokens);
}

/// Returns true while a running prompt computes a text of this request behind another beginning. The text's KV is then
/// handed over like an answer's, as soon as that prompt is complete.
bool EngineCore::follows_texts(Sequence& next) {
  const GenerationRequest& request = next.request();
  std::int32_t known = -1, begin = 0;
  for (std::size_t part = 0; part < request.prompt.size(); ++part) {
    const PromptPart& text = request.prompt[part];
    const std::int32_t at = begin;
    begin += static_cast<std::int32_t>(text.tokens.size());
    if (!takes_text(request, text, 0)) continue;
    const RunningText found = find_running_text(running_, request.run, text.tokens);
    if (found.author == nullptr || found.author->speculation.is_tentative() || !takes_text(request, text, found.hops))
      continue;
    if (known < 0) known = known_beginning(next);
    if (at < known) continue;  // it is there already
    if (!found.author->decoding()) return true;
    if (SegmentHandle segment = store_running_text(found, *backend_, store_))
      give_segment(next, part, std::move(segment));
  }
  return false;
}

/// Gives the texts of a sequence that has ended to the requests of its run that wait.
void EngineCore::give_texts(Sequence& ended) {
  const GenerationRequest& author = ended.request();
  const std::vector<SegmentHandle>& segments = ended.result().segments;
  for (const auto& next : waiting_) {
    const std::vector<PromptPart>& prompt = next->request().prompt;
    if (next->request().run != author.run) continue;
    for (std::size_t part = 0; part < prompt.size(); ++part) {
      for (std::size_t from = 0; from < segments.size(); ++from) {
        if (!segments[from] || author.prompt[from].tokens != prompt[part].tokens) continue;
        if (takes_text(next->request(), prompt[part], segments[from]->hops)) give_segment(*next, part, segments[from]);
      }
    }
  }
}

/// Stores what a request that was cut off has computed, if others wait for it; one of them continues from there.
void EngineCore::keep_for_followers(const Sequence& sequence) {
  const bool followed = std::any_of(waiting_.begin(), waiting_.end(),
                                    [&](const auto& other) { return other->state.lead.id == sequence.id(); });
  const LivePrefix live = live_prefix(sequence);
  if (!followed || live.ready == 0) return;
  try {
    prefixes_.add(*backend_, *live.cache, live.tokens.first(static_cast<std::size_t>(live.ready)));
  } catch (const std::exception&) {  // the followers compute the beginning
  }
}

/// A prompt that is nearly complete is not worth a second sequence, and a forced answer needs no check. Choices need
/// the exact prompt before the first of them is known.
bool EngineCore::begins_tentatively(const Sequence& sequence) const {
  const GenerationRequest& request = sequence.request();
  if (request.reuse.method->id != MethodId::verified || !takes_segments(request.reuse) || sequence.answer.is_forced() ||
      sequence.answer.scores() != nullptr)
    return false;
  const auto prompt = sequence.state.prompt();
  return sequence.state.prompt_length - ahead_.computed(request.early, prompt) >= options_.min_tentative_rows;
}

/// Returns the early prompt that is the same as the sequence's; one that was computed so far continues.
EarlyId EngineCore::twin_of(const Sequence& sequence) {
  const auto prompt = sequence.state.prompt();
  std::vector<EarlyPart> whole{{std::vector<TokenId>(prompt.begin(), prompt.end())}};
  if (const EarlyId early = sequence.request().early; ahead_.has(early)) {
    ahead_.update(early, std::move(whole), true);
    ahead_.submitted(early);
    return early;
  }
  EarlyId id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_id_;
  }
  ahead_.prepare(id, {std::move(whole), true, sequence.state.max_positions(), sequence.request().reuse});
  ahead_.submitted(id);
  return id;
}

void EngineCore::verify_complete() {
  const auto ready = [&](const auto& one) {
    return one->speculation.is_tentative() && (one->speculation.is_written() || ahead_.complete(one->request().early));
  };
  while (true) {  // what a check finds no memory for may end others
    const auto next = std::find_if(running_.begin(), running_.end(), ready);
    if (next == running_.end()) return;
    verify(**next);
  }
}

void EngineCore::verify(Sequence& sequence) {
  std::vector<float> logits;
  while (true) {
    try {
      if (sequence.speculation.is_tentative()) sequence.begin_check();
      logits = start(sequence);
      break;
    } catch (const std::exception& error) {
      if (!drop_probe() && !ahead_.evict_last(0)) return end(&sequence, FinishReason::error, message_of(error));
    }
  }
  count_kv();
  const Part first{&sequence, 1};
  if (!logits.empty()) sample({&first, 1}, logits);
}

/// What is left of the time in which the first token should come: none while other prompts wait or are computed, so
/// that each recomputes as little as it may (DroidSpeak, Appendix B).
PromptTime EngineCore::time_for(const Sequence& sequence) const {
  const double ttft = sequence.request().reuse.ttft_ms;
  const auto delays = [&](const auto& other) {
    return other.get() != &sequence && !other->decoding() && !other->state.probe;
  };
  if (ttft <= 0.0 || std::any_of(running_.begin(), running_.end(), delays) ||
      std::any_of(waiting_.begin(), waiting_.end(), delays))
    return {};
  return {ttft - milliseconds(Clock::now() - sequence.state.submitted), costs_.row_ms()};
}

std::vector<float> EngineCore::start(Sequence& sequence) {
  const Clock::time_point begin = Clock::now();
  const GenerationRequest& request = sequence.request();
  const std::span<const TokenId> prompt = sequence.state.prompt();
  const KvLayout layout = layout_for(request, *model_, request.reuse.range);
  bool tentative = begins_tentatively(sequence);
  if (!tentative && request.reuse.method->id == MethodId::verified) sequence.be_exact();
  auto early = tentative ? std::nullopt : ahead_.take(request.early, prompt, sequence.state.max_positions(), layout);
  KvCache cache = early ? std::move(early->cache) : KvCache(*backend_, layout, sequence.state.max_positions());
  const InPlace in_place = early ? InPlace{early->placed, early->ahead, early->length} : InPlace{};
  corrector_.use(measuring_.with_calibration([](const Calibration& now) { return now.corrections; }));
  std::vector<LivePrefix> live = running_prefixes();
  ahead_.add_live(live);
  PromptAssembly assembly(request, prompt, *backend_, *model_, store_, prefixes_, anchors_, corrector_, live, in_place,
                          time_for(sequence));
  if (tentative && assembly.hops == 0) {  // nothing could be handed over
    sequence.be_exact();
    if (ahead_.computed(request.early, prompt) > 0) return start(sequence);
    tentative = false;
  }
  if (tentative) sequence.be_tentative(twin_of(sequence));
  PrefillTimes times;
  times.match = milliseconds(Clock::now() - begin);
  forward_.alongside([&] { assembly.insert(*backend_, forward_.angles(), cache); });
  placed_.push_back({sequence.id(), assembly.placed_tokens()});
  sequence.start(std::move(cache), std::move(assembly), times);
  sequence.prompt.on_step_begin(begin, sequence.state.submitted);
  try_to([&] {
    if (auto turn = measuring_.begin(request)) sequence.state.measured = std::move(turn);
  });
  return early ? std::move(early->logits) : std::vector<float>();
}

}  // namespace baton
