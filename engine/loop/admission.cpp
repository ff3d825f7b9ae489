// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/admission.h"

#include <algorithm>
#include <utility>

#include "engine/loop/kv_lookup.h"
#include "engine/loop/prompt_assembly.h"

namespace baton {
namespace {

/// A prompt waits for the store so long at most: for each token if the time of a row is unknown, and at least in all.
constexpr double kUnknownRowMs = 0.5, kLeastWaitMs = 500.0;
/// The engine's thread waits so long for a load if nothing runs.
constexpr std::chrono::milliseconds kStoreLook{2};

std::optional<std::int32_t> max_prefix_of(const GenerationRequest& request) {
  if (!takes_prefixes(request.reuse)) return std::nullopt;
  return max_prefix(request);
}

}  // namespace

Admit find_place(const AdmissionSnapshot& now) {
  const bool place = now.running + now.following < now.max_sequences;
  if (place && now.running_bytes + now.following_bytes + now.request_bytes <= now.budget_bytes) return Admit::begin;
  return now.has_probe ? Admit::drop_probe : Admit::wait;
}

Admit make_room(const AdmissionSnapshot& now) {
  const std::int64_t own = std::max(now.request_bytes, now.own_early_bytes);
  if (now.running_bytes + now.early_bytes - now.own_early_bytes + own <= now.budget_bytes) return Admit::begin;
  return now.has_probe ? Admit::drop_probe : Admit::evict_early;
}

bool probe_fits(const AdmissionSnapshot& now) {
  return now.running_bytes + now.early_bytes + now.request_bytes <= now.budget_bytes / 2;
}

bool begins_tentatively(const GenerationRequest& request, const ReuseDecision& decision, bool has_choices,
                        std::int32_t left, std::int32_t min_left) {
  if (!may_begin_tentatively(*request.reuse.method) || decision.exact) return false;
  return request.forced.empty() && !has_choices && left >= min_left;
}

AdmissionSnapshot Admission::snapshot(const Sequence& next) const {
  return {.max_sequences = parts_.options.max_sequences,
          .running = static_cast<std::int32_t>(parts_.running.size()),
          .budget_bytes = parts_.options.kv_budget_bytes,
          .running_bytes = kv_bytes(parts_.running),
          .request_bytes = bytes_for(parts_, next.request(), next.state.decision, next.state.max_positions()),
          .early_bytes = parts_.ahead.bytes(),
          .has_probe = std::any_of(parts_.running.begin(), parts_.running.end(),
                                   [](const auto& one) { return one->state.probe != nullptr; })};
}

void Admission::admit() {
  SequenceList& waiting = parts_.work.waiting;
  // The first `following` requests wait for a running prompt and keep their places; the next one is behind them.
  std::int64_t following_bytes = 0;
  std::size_t following = 0;
  while (following < waiting.size()) {
    Sequence& next = *waiting[following];
    AdmissionSnapshot now = snapshot(next);
    now.following = static_cast<std::int32_t>(following);
    now.following_bytes = following_bytes;
    const Admit place = find_place(now);
    if (place == Admit::wait) return;
    if (place == Admit::drop_probe) {
      end_.drop_probe();
      continue;
    }
    if (wait_for_store(next) || wait_for_beginning(next) || wait_for_texts(next)) {
      following_bytes += now.request_bytes;
      ++following;
      continue;
    }
    // A tentative request's early prompt stays, next to the request's own cache.
    const EarlyId own = starts_tentatively(next) ? 0 : next.request().early;
    for (bool room = false; !room;) {
      now = snapshot(next);
      now.own_early_bytes = parts_.ahead.bytes_of(own);
      const Admit step = make_room(now);
      if (step == Admit::drop_probe) end_.drop_probe();
      // If no early prompt is left to evict, the request begins although it is over the budget.
      room = step == Admit::begin || (step == Admit::evict_early && !parts_.ahead.evict_last(own));
    }
    if (!begin(waiting.begin() + static_cast<std::ptrdiff_t>(following))) return;
  }
}

/// Begins a request. Returns false when admission has to wait for the next step. True: admission continues at the same
/// place in the list, where the next request stands, or the same one again after memory was freed for it.
bool Admission::begin(SequenceList::iterator at) {
  SequenceList& running = parts_.running;
  std::vector<float> logits;
  try {
    logits = start(**at);
  } catch (const std::exception& error) {
    if (end_.drop_probe() || parts_.ahead.evict_last(0)) return true;
    if (!running.empty()) return false;
    end_.end(parts_.work.waiting, at, FinishReason::error, message_of(error));
    return true;
  }
  const bool copied = (*at)->prompt.assembly().kv().placed_tokens() > 0;
  running.push_back(std::move(*at));
  parts_.work.waiting.erase(at);
  end_.count_kv();
  if (!logits.empty()) runner_.take_logits(*running.back(), logits);
  // Copying KV lengthens the step, so sequences that decode wait for one copy at a time.
  return !copied || std::none_of(running.begin(), running.end(), [](const auto& one) { return one->decoding(); });
}

void Admission::admit_probe() {
  SequenceList& probes = parts_.probes;
  end_.drop_lost_probes();
  SequenceList& running = parts_.running;
  if (probes.empty() || !parts_.work.waiting.empty()) return;
  const AdmissionSnapshot now = snapshot(*probes.front());
  if (now.running >= now.max_sequences || now.has_probe) return;
  const bool started = probe_fits(now) && try_to([&] {
                         for (const PromptPart& part : probes.front()->request().prompt)
                           parts_.store.plan_read(part.segment);
                         start(*probes.front());
                         running.push_back(nullptr);
                       });
  if (!started) return end_.end(probes, probes.begin(), FinishReason::cancelled, "");
  running.back() = std::move(probes.front());
  probes.pop_front();
  end_.count_kv();
}

PromptKv Admission::kv_of(const RequestState& next) {
  const GenerationRequest& request = next.request;
  const std::span<const TokenId> prompt = next.prompt();
  return {.stored = takes_prefixes(request.reuse) ? parts_.prefixes.length(prompt) : 0,
          .early = parts_.ahead.computed(request.early, prompt),
          .context = context_length(request, next.decision, prompt, parts_.store)};
}

/// Returns true while KV of a request's prompt is read from the store: first that of its beginning, then that of texts
/// behind it.
bool Admission::wait_for_store(Sequence& next) {
  FromStore& stored = next.state.stored;
  if (!uses_store(parts_, next.request()) || stored.step == FromStore::Step::over) return false;
  bool waits = false;
  // What fails here is computed.
  const bool done = try_to([&] {
    if (stored.step == FromStore::Step::before) {
      waits = follows_reader(next);
      if (waits) return;
      look_for_beginning(next);
    }
    waits = is_read(stored);
    if (waits) return;
    if (stored.step == FromStore::Step::beginning) {
      take_beginning(next);
      look_for_texts(next);
      waits = is_read(stored);
      if (waits) return;
    }
    take_texts(next);
    if (!stored.loads.empty() || next.state.result.stored_tokens > 0)
      next.state.result.stored_ms = milliseconds(Clock::now() - stored.begin);
  });
  if (done && waits) return true;
  stored.loads.clear();
  stored.step = FromStore::Step::over;
  return false;
}

/// True if an earlier request that waits reads a beginning that this one has in common with it.
bool Admission::follows_reader(const Sequence& next) const {
  const std::span<const TokenId> prompt = next.state.prompt();
  for (const auto& other : parts_.work.waiting) {
    if (other.get() == &next) return false;
    const std::span<const TokenId> its = other->state.prompt();
    const bool reads = other->state.stored.step == FromStore::Step::beginning;
    const auto block = static_cast<std::size_t>(KvStore::kBlock);
    if (reads && its.size() >= block && prompt.size() >= block &&
        std::ranges::equal(its.first(block), prompt.first(block)))
      return true;
  }
  return false;
}

/// Returns true while one of the loads is not complete. If nothing runs, the engine's thread waits a little.
bool Admission::is_read(const FromStore& stored) const {
  if (stored.loads.empty() || Clock::now() >= stored.due) return false;
  for (const FromStore::Part& one : stored.loads)
    if (!one.load->done(parts_.running.empty() ? kStoreLook : std::chrono::milliseconds(0))) return true;
  return false;
}

void Admission::look_for_beginning(Sequence& next) {
  FromStore& stored = next.state.stored;
  stored.step = FromStore::Step::beginning;
  stored.begin = Clock::now();
  // Reading must not take longer than computing would, as far as that is known.
  const double row_ms = parts_.costs.row_ms() > 0.0 ? parts_.costs.row_ms() : kUnknownRowMs;
  const double most = std::max(kLeastWaitMs, row_ms * static_cast<double>(next.state.prompt_length));
  stored.due = stored.begin + std::chrono::microseconds(static_cast<std::int64_t>(most * 1000.0));
  if (!takes_prefixes(next.request().reuse)) return;
  const std::span<const TokenId> prompt = next.state.prompt();
  const std::int32_t longest = max_prefix(next.request());
  if (longest < known_beginning_of(next) + KvStore::kBlock) return;
  stored.loads.push_back(
      {0, parts_.disk->load({prompt.begin(), prompt.end()}, parts_.prefixes.length(prompt), longest)});
}

/// Puts the beginning that was read among the prefixes, where the prompt looks for it.
void Admission::take_beginning(Sequence& next) {
  const std::vector<FromStore::Part> loads = std::exchange(next.state.stored.loads, {});
  next.state.stored.step = FromStore::Step::texts;
  if (loads.empty() || !loads[0].load->done() || loads[0].load->kv.empty()) return;
  const KvLoad& load = *loads[0].load;
  const auto tokens = next.state.prompt().first(static_cast<std::size_t>(load.end));
  if (parts_.prefixes.length(tokens) != load.begin) return;  // another prompt has computed it meanwhile
  KvLayout layout = parts_.model->kv_layout();
  layout.raw_keys = true;
  const auto read = tokens.subspan(static_cast<std::size_t>(load.begin));
  auto segment =
      std::make_shared<Segment>(*parts_.backend, layout, std::vector<TokenId>(read.begin(), read.end()), load.kv);
  segment->position = load.begin;
  if (parts_.prefixes.insert(tokens, load.begin, std::move(segment)))
    next.state.result.stored_tokens += static_cast<std::int64_t>(read.size());
}

/// Begins to read the texts behind what is known of a prompt, as far as they may be handed over.
void Admission::look_for_texts(Sequence& next) {
  const GenerationRequest& request = next.request();
  const KvLayout layout = layout_for(request, *parts_.model, next.state.decision.range);
  if (layout.received) return;
  const std::int32_t known = known_beginning_of(next);
  std::int32_t begin = 0;
  for (std::size_t part = 0; part < request.prompt.size(); ++part) {
    const PromptPart& text = request.prompt[part];
    if (begin >= known && takes_text(request, next.state.decision, text, 0))
      next.state.stored.loads.push_back({part, parts_.disk->load_text(text.tokens.ids(), layout)});
    begin += static_cast<std::int32_t>(text.tokens.size());
  }
}

/// Puts the texts that were read into the request as segments.
void Admission::take_texts(Sequence& next) {
  GenerationResult& result = next.state.result;
  KvLayout layout = layout_for(next.request(), *parts_.model, next.state.decision.range);
  layout.raw_keys = true;
  for (const auto& [at, load] : next.state.stored.loads) {
    if (!load->done() || load->kv.empty()) continue;
    const PromptPart& part = next.request().prompt[at];
    SegmentHandle segment =
        parts_.store.add(std::make_shared<Segment>(*parts_.backend, layout, part.tokens, load->kv), part.readers + 1);
    if (!segment) continue;
    result.segments.resize(next.request().prompt.size());
    result.segments[at] = segment;  // for the readers behind it
    result.stored_tokens += static_cast<std::int64_t>(part.tokens.size());
    give_segment(next.state.request, at, segment);
  }
}

/// Returns true while a request waits for the beginning that it has in common with a running prompt. Notes in the
/// request which prompt that is, and asks that prompt for the state at the end of the common beginning.
bool Admission::wait_for_beginning(Sequence& next) {
  const GenerationRequest& request = next.request();
  if (!takes_prefixes(request.reuse)) return false;
  const std::vector<LivePrefix> live = live_prefixes(parts_.running);
  if (const Lead lead = next.state.lead; lead.id != 0) {
    const auto found = std::find_if(live.begin(), live.end(), [&](const LivePrefix& one) { return one.id == lead.id; });
    if (found != live.end() && found->ready < lead.length) return true;
  }
  const std::span<const TokenId> prompt = next.state.prompt();
  const std::int32_t longest = max_prefix(request);
  Lead lead = lead_of(live, prompt, longest, 0);
  // The look-up comes only now, since it compares the prompt with all stored prefixes.
  if (lead.id != 0) lead = lead_of(kv_of(next.state), live, prompt, longest);
  next.state.lead = lead;
  const auto leads = std::ranges::find_if(parts_.running, [&](const auto& one) { return one->id() == lead.id; });
  if (leads != parts_.running.end()) (*leads)->cache().states().want(lead.length);
  return lead.id != 0;
}

/// Returns true while a running prompt computes a text of this request behind another beginning. As soon as that prompt
/// is complete, puts the text's KV into the request as a segment, so that it is handed over like an answer's.
bool Admission::wait_for_texts(Sequence& next) {
  const GenerationRequest& request = next.request();
  std::int32_t known = -1, begin = 0;
  for (std::size_t part = 0; part < request.prompt.size(); ++part) {
    const PromptPart& text = request.prompt[part];
    const std::int32_t at = begin;
    begin += static_cast<std::int32_t>(text.tokens.size());
    if (!takes_text(request, next.state.decision, text, 0)) continue;
    const RunningText found = find_running_text(parts_.running, request.run, text.tokens);
    if (found.author == nullptr) continue;
    if (known < 0) known = known_beginning_of(next);
    const TextInPrompt there{found.author->speculation.is_tentative(), found.author->decoding(), found.hops};
    const TextStep step = text_step(request, next.state.decision, text, there, at, known);
    if (step == TextStep::wait) return true;
    if (step == TextStep::compute) continue;
    if (SegmentHandle segment = keeper_.store_text(found)) give_segment(next.state.request, part, segment);
  }
  return false;
}

std::int32_t Admission::known_beginning_of(const Sequence& next) {
  const std::span<const TokenId> prompt = next.state.prompt();
  return known_beginning(kv_of(next.state), live_prefixes(parts_.running), prompt, max_prefix_of(next.request()));
}

/// Returns begins_tentatively() for a sequence, with what was computed ahead of its prompt.
bool Admission::starts_tentatively(const Sequence& sequence) const {
  const RequestState& state = sequence.state;
  const std::int32_t left = state.prompt_length - parts_.ahead.computed(state.request.early, state.prompt());
  return baton::begins_tentatively(state.request, state.decision, sequence.answer.scores() != nullptr, left,
                                   parts_.options.min_tentative_rows);
}

/// Returns the early prompt that computes the same tokens exactly: the request's own, which continues, or else a new
/// one.
EarlyId Admission::twin_of(const Sequence& sequence) {
  const std::span<const TokenId> prompt = sequence.state.prompt();
  std::vector<EarlyPart> whole{{std::vector<TokenId>(prompt.begin(), prompt.end())}};
  if (const EarlyId early = sequence.request().early; parts_.ahead.has(early)) {
    parts_.ahead.update(early, std::move(whole), true);
    parts_.ahead.submitted(early);
    return early;
  }
  const EarlyId id = parts_.inbox.next_id();
  parts_.ahead.prepare(id, {std::move(whole), true, sequence.state.max_positions(), sequence.request().reuse},
                       sequence.state.decision);
  parts_.ahead.submitted(id);
  return id;
}

void Admission::begin_checks() {
  const auto ready = [&](const auto& one) {
    return one->speculation.is_tentative() &&
           (one->speculation.is_written() || parts_.ahead.complete(one->request().early));
  };
  while (true) {  // searches anew each time, since a check that finds no memory may end others
    const auto next = std::find_if(parts_.running.begin(), parts_.running.end(), ready);
    if (next == parts_.running.end()) return;
    begin_check(**next);
  }
}

void Admission::begin_check(Sequence& sequence) {
  std::vector<float> logits;
  while (true) {
    try {
      if (sequence.speculation.is_tentative()) sequence.begin_check();
      logits = start(sequence);
      break;
    } catch (const std::exception& error) {
      if (!end_.drop_probe() && !parts_.ahead.evict_last(0))
        return end_.end(&sequence, FinishReason::error, message_of(error));
    }
  }
  end_.count_kv();
  if (!logits.empty()) runner_.take_logits(sequence, logits);
}

/// Returns what is left of the time in which the first token should come; nothing while other prompts wait or are
/// computed, so that each recomputes as little as it may (DroidSpeak, Appendix B).
PromptTime Admission::time_for(const Sequence& sequence) const {
  const double ttft = wanted_ttft_ms(sequence.request().reuse);
  const auto delays = [&](const auto& other) {
    return other.get() != &sequence && !other->decoding() && !other->state.probe;
  };
  const SequenceList& running = parts_.running;
  const SequenceList& waiting = parts_.work.waiting;
  if (ttft <= 0.0 || std::any_of(running.begin(), running.end(), delays) ||
      std::any_of(waiting.begin(), waiting.end(), delays))
    return {};
  return {ttft - milliseconds(Clock::now() - sequence.state.submitted), parts_.costs.row_ms()};
}

/// Makes a sequence runnable. Returns the logits of its prompt's last token if they were computed ahead, else nothing.
std::vector<float> Admission::start(Sequence& sequence) {
  const Clock::time_point begin = Clock::now();
  const GenerationRequest& request = sequence.request();
  const std::span<const TokenId> prompt = sequence.state.prompt();
  const std::int32_t positions = sequence.state.max_positions();
  const KvLayout layout = layout_for(request, *parts_.model, sequence.state.decision.range);
  bool tentative = starts_tentatively(sequence);
  if (!tentative && may_begin_tentatively(*request.reuse.method)) sequence.be_exact();
  auto early = tentative ? std::nullopt : parts_.ahead.take(request.early, prompt, positions, layout);
  KvCache cache = early ? std::move(early->cache) : KvCache(*parts_.backend, layout, positions);
  const InPlace in_place = early ? InPlace{early->placed, early->ahead, early->length} : InPlace{};
  std::vector<LivePrefix> live = live_prefixes(parts_.running);
  parts_.ahead.add_live(live);
  auto corrections = parts_.measuring.with_calibration([](const Calibration& now) { return now.corrections; });
  const AssemblyInput input{request, sequence.state.decision, prompt, in_place, time_for(sequence)};
  const KvSources sources{*parts_.backend, *parts_.model,          parts_.store, parts_.prefixes,
                          parts_.states,   std::move(corrections), live};
  PromptAssembly assembly(input, sources);
  if (tentative && assembly.hops == 0) {  // nothing could be handed over
    sequence.be_exact();
    // The second call begins again, now exactly, with the early prompt's cache.
    if (parts_.ahead.computed(request.early, prompt) > 0) return start(sequence);
    tentative = false;
  }
  if (tentative) sequence.be_tentative(twin_of(sequence));
  PrefillTimes times;
  times.match = milliseconds(Clock::now() - begin);
  parts_.forward.alongside([&] { assembly.kv().insert(*parts_.backend, parts_.forward.angles(), cache); });
  parts_.copied.push_back({sequence.id(), assembly.kv().placed_tokens()});
  sequence.start(std::move(cache), std::move(assembly), times);
  sequence.prompt.on_step_begin(begin, sequence.state.submitted);
  try_to([&] {
    if (auto turn = parts_.measuring.begin(request, sequence.state.decision)) sequence.state.measured = std::move(turn);
  });
  return early ? std::move(early->logits) : std::vector<float>();
}

}  // namespace baton
