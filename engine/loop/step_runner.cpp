// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_runner.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

DraftKind draft_kind(const Sequence& sequence) {
  if (sequence.speculation.is_checking()) return DraftKind::check;
  return is_scoring(sequence) || sequence.answer.is_forced() ? DraftKind::forced : DraftKind::guess;
}

/// True if its answer is not the one that its turn has written, or will write.
bool is_incomplete(const Sequence& probe) {
  return probe.state.probe != nullptr && probe.request().forced.size() + 1 != probe.state.probe->compared();
}

}  // namespace

/// Appends tokens to a sequence that has not fallen back to exact KV: the next one, and those behind it as long as they
/// agree with the draft. advance(i) appends the token behind the i-th row with logits.
template <class Advance>
void StepRunner::take(Sequence& sequence, const Advance& advance) {
  try {
    for (std::int32_t i = 0;; ++i) {
      const Sequence::Next next = advance(i);
      const GenerationRequest& request = sequence.request();
      parts_.states.on_token({sequence.id(), request.reuse, request.output_slot, sequence.result().tokens});
      if (next == Sequence::Next::drafted) continue;
      if (next != Sequence::Next::end) return;
      if (sequence.speculation.is_tentative()) return sequence.speculation.end_tentative();
      return end_.end(&sequence, FinishReason::eos, "");
    }
  } catch (const std::exception& error) {  // no finite logit, no memory, or a callback that threw
    end_.end(&sequence, FinishReason::error, message_of(error));
  } catch (...) {  // a host may throw anything
    end_.end(&sequence, FinishReason::error, kCallbackThrew);
  }
}

void StepRunner::take_logits(Sequence& sequence, std::span<const float> logits) {
  take_logits_of({&sequence, 1}, logits);
}

void StepRunner::take_logits_of(const Part& part, std::span<const float> logits) {
  if (!part.sequence->decoding()) return;  // it fell back
  const auto vocabulary = static_cast<std::size_t>(parts_.model->config.vocabulary);
  take(*part.sequence, [&](std::int32_t i) {
    const auto row = logits.subspan(vocabulary * static_cast<std::size_t>(i), vocabulary);
    return part.sequence->advance(row, scratch_, parts_.drafts);
  });
}

bool StepRunner::step() {
  // This comes first, because a token of the last step may have given an early prompt rows to run.
  parts_.ahead.refresh([this](RequestId id) { return decoded(id); });
  std::vector<SequenceSnapshot> sequences = snapshots();
  find_drafts(sequences);
  const bool probing = !is_prefilling(sequences) && !has_work_ahead(parts_);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = *parts_.running[i];
    const bool waits = sequence.state.probe && (!probing || (sequence.decoding() && is_incomplete(sequence)));
    sequences[i].tokens = waits ? 0 : sequence.pending();
  }
  const std::int32_t decoding = decoding_rows(sequences);
  StepMeasures measures{.row_ms = parts_.costs.row_ms()};
  if (keeps_decode_pace(sequences)) measures.spare_rows = parts_.spare.next(decoding, measures.row_ms);
  measures.plain_ms = parts_.spare.plain_ms(decoding);
  const StepPlan plan = plan_step(sequences, measures, parts_.options);

  rows_.clear();
  add_sequence_rows(plan);
  const auto prompt_rows = static_cast<std::int32_t>(rows_.size()) - decoding;
  parts_.ahead.add_rows(rows_, decoding, is_prefilling(sequences), free_bytes(parts_), live_prefixes(parts_.running),
                        plan.min_ahead_rows);
  if (rows_.size() == 0) {
    end_.count_kv();
    return false;
  }
  wait_for_layers();
  const Clock::time_point begin = Clock::now();
  if (!run_rows()) return false;
  commit(decoding, prompt_rows, milliseconds(Clock::now() - begin));
  store_prefixes();
  report_progress();
  take_tokens();
  begin_probes();
  return true;
}

/// All rows of a probe count as rows of a prompt, one that is served last.
std::vector<SequenceSnapshot> StepRunner::snapshots() {
  std::vector<SequenceSnapshot> all;
  for (const auto& sequence : parts_.running) {
    const RequestState& state = sequence->state;
    all.push_back(
        {.decoding = sequence->decoding() && state.probe == nullptr,
         .deadline = state.probe ? HUGE_VAL : sequence->prompt.deadline(parts_.costs.row_ms(), state.submitted),
         .probe = state.probe != nullptr,
         .tentative = sequence->speculation.is_tentative(),
         .has_early = parts_.ahead.has(state.request.early),
         .draft = draft_kind(*sequence),
         .submitted = state.submitted,
         .prefilled = sequence->prompt.prefilled_at()});
  }
  return all;
}

/// Drafts take rows that the step's prompts and early prompts do not get.
void StepRunner::find_drafts(std::span<const SequenceSnapshot> sequences) {
  const std::int32_t decoding = decoding_sequences(sequences);
  DraftLength::Step step{decoding, static_cast<double>(decoding)};
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *parts_.running[i];
    if (!sequence.decoding()) continue;
    const DraftRule rule = draft_rule(sequences[i].draft, decoding, parts_.options);
    const std::int32_t longest =
        sequence.cache().states().kept() ? std::min(rule.max_tokens, kMaxStateDraft) : rule.max_tokens;
    const Draft draft = find_draft(sequence, longest);
    const auto found = static_cast<std::int32_t>(draft.tokens.size());
    sequence.speculation.set_draft(draft,
                                   rule.whole ? found : parts_.drafts.choose(draft, parts_.costs.row_ms(), step));
  }
}

void StepRunner::add_sequence_rows(const StepPlan& plan) {
  in_step_.clear();
  on_device_.clear();
  on_host_.clear();
  std::vector<std::int32_t> sampled;  // rows with logits of sequences that get them
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i] == 0) continue;
    Sequence& sequence = *parts_.running[i];
    if (sequence.state.probe && sequence.decoding()) sequence.speculation.shorten_draft(plan.rows[i] - 1);
    const std::int32_t count = sequence.add_rows(plan.rows[i], rows_);
    in_step_.push_back({&sequence, count});
    if (count != sequence.pending()) continue;
    const Part asking{&sequence, sequence.decoding() ? count : 1};
    const bool chosen = chooses_alone(sequence);
    (chosen ? on_device_ : on_host_).push_back(asking);
    for (std::int32_t ahead = 0; ahead < asking.rows; ++ahead) {
      const auto row = static_cast<std::int32_t>(rows_.size() - asking.rows + ahead);
      (chosen ? rows_.logits_rows : sampled).push_back(row);
      if (chosen) rows_.choices.push_back(sequence.answer.choice(ahead));
    }
  }
  rows_.logits_rows.insert(rows_.logits_rows.end(), sampled.begin(), sampled.end());
}

void StepRunner::wait_for_layers() {
  std::vector<Sequence*> uploading;
  for (const Part& part : in_step_) {
    if (part.sequence->prompt.assembly().kv().is_uploading()) uploading.push_back(part.sequence);
  }
  if (uploading.empty()) return;
  rows_.before_layer = [this, uploading = std::move(uploading)](std::int32_t layer) {
    for (Sequence* sequence : uploading)
      sequence->prompt.assembly().kv().insert_uploaded(*parts_.backend, parts_.forward.angles(), sequence->cache(),
                                                       layer);
  };
}

bool StepRunner::run_rows() {
  try {
    logits_ = parts_.forward.run(rows_);
    return true;
  } catch (const std::exception& error) {
    // The step is retried without probes and early prompts, unless it sums attention, which a retry would count twice.
    const bool summed = std::any_of(rows_.caches.begin(), rows_.caches.end(),
                                    [](const KvCache* cache) { return cache->received() != nullptr; });
    const bool dropped = end_.drop_probe() || parts_.ahead.drop_parts() || parts_.ahead.evict_last(0);
    if (dropped && !summed) return false;
    for (const Part& part : in_step_) end_.end(part.sequence, FinishReason::error, message_of(error));
    return false;
  }
}

void StepRunner::commit(std::int32_t decoding, std::int32_t prompt_rows, double ms) {
  const std::int32_t rows_ahead = parts_.ahead.rows();
  if (prompt_rows > 0) parts_.costs.on_step(rows_.path, parts_.forward.times());
  parts_.spare.on_step(decoding, prompt_rows + rows_ahead, ms);
  if (prompt_rows + rows_ahead == 0) parts_.drafts.on_step(decoding, ms);
  take_copy_times();
  std::size_t sampled = 0;
  for (const Part& part : on_host_) sampled += static_cast<std::size_t>(part.rows);
  parts_.ahead.commit(logits_.subspan(sampled * static_cast<std::size_t>(parts_.model->config.vocabulary)));
  end_.count_kv();  // includes the caches that were started for rows ahead
  std::size_t row = 0;
  for (const Part& part : in_step_) {
    part.sequence->commit(std::span(rows_.path).subspan(row, static_cast<std::size_t>(part.rows)),
                          parts_.forward.times());
    row += static_cast<std::size_t>(part.rows);
    part.sequence->prompt.fall_back(part.sequence->cache());  // if it does, it takes no token in this step
  }
  parts_.counters.add_step(rows_.size(), rows_ahead, parts_.spare.knee());
  count_measuring(decoding, prompt_rows + rows_ahead, ms);
}

/// The rows of probes take their share of what a step took longer than one of the decoding rows alone.
void StepRunner::count_measuring(std::int32_t decoding, std::int32_t other_rows, double ms) {
  std::int32_t rows = 0;
  for (const Part& part : in_step_) rows += part.sequence->state.probe ? part.rows : 0;
  if (rows == 0) return;
  const double longer = std::max(0.0, ms - (decoding > 0 ? parts_.spare.plain_ms(decoding) : 0.0));
  parts_.counters.add_measured(longer * rows / std::max(rows, other_rows));
}

/// A probe begins with its turn, so that it is nearly complete when the turn ends, after which the process may end. It
/// gets its answer when the turn has written enough.
void StepRunner::begin_probes() {
  for (const auto& sequence : parts_.running) {
    MeasuredTurn* turn = sequence->state.measured.get();
    if (turn == nullptr || !sequence->decoding() || sequence->result().tokens.empty()) continue;
    if (!turn->has_probe) end_.make_probe_of(*sequence);
    if (turn->full() && !turn->has_answer()) turn->set_answer(sequence->result().tokens);
  }
  for (SequenceList* list : {&parts_.running, &parts_.probes}) {
    for (const auto& probe : *list) {
      MeasuredTurn* turn = probe->state.probe.get();
      if (!is_incomplete(*probe) || turn->compared() == 0) continue;
      if (!try_to([&] { complete_probe(probe->state.request, *turn); })) turn->set_answer({});
    }
  }
}

/// Adds the copy times that the step measured to the sequences that were started before it.
void StepRunner::take_copy_times() {
  const std::vector<double>& taken = parts_.forward.times().alongside;
  std::vector<CopiedKv>& copied = parts_.copied;
  for (std::size_t i = 0; i < taken.size() && taken.size() == copied.size(); ++i) {
    for (const auto& sequence : parts_.running) {
      if (sequence->id() == copied[i].id) sequence->result().prefill.copy += taken[i];
    }
  }
  copied.clear();
}

/// If other sequences decode, a prompt's KV is stored while it is computed: all of it at its end would make them wait.
/// Devices copy without the host.
void StepRunner::store_prefixes() {
  constexpr std::int32_t kPiece = 128;  // tokens
  if (!parts_.device.host_memory || parts_.running.size() < 2) return;
  for (const Part& part : in_step_) {
    const LivePrefix live = live_prefix(*part.sequence);
    const auto tokens = static_cast<std::int32_t>(live.tokens.size());  // the cache may hold drafts behind them
    const std::int32_t ready = std::min(live.ready, tokens) / kPiece * kPiece;
    if (ready <= part.sequence->prompt.stored()) continue;
    part.sequence->prompt.set_stored(ready);
    try_to(
        [&] { parts_.prefixes.add(*parts_.backend, *live.cache, live.tokens.first(static_cast<std::size_t>(ready))); });
  }
}

/// A sequence that ends here has rows left, so it is none of those that get a token in this step.
void StepRunner::report_progress() {
  const Clock::time_point now = Clock::now();
  for (const Part& part : in_step_) {
    try {
      part.sequence->prompt.report(now, parts_.options.progress_ms, part.sequence->cache());
    } catch (const std::exception& error) {  // the callback threw
      end_.end(part.sequence, FinishReason::error, message_of(error));
    } catch (...) {
      end_.end(part.sequence, FinishReason::error, kCallbackThrew);
    }
  }
}

/// Returns the tokens that a request has decoded so far, or null when the request is not running.
const std::vector<TokenId>* StepRunner::decoded(RequestId id) const {
  const SequenceList& running = parts_.running;
  const auto found = std::find_if(running.begin(), running.end(), [&](const auto& s) { return s->id() == id; });
  if (found == running.end()) return nullptr;
  return (*found)->speculation.is_tentative() ? &no_tokens_ : &(*found)->result().tokens;
}

/// Gives the sequences of the step their tokens.
void StepRunner::take_tokens() {
  std::size_t chosen = 0;
  for (const Part& part : on_device_) {
    if (part.sequence->decoding()) {
      take(*part.sequence, [&](std::int32_t i) {
        return part.sequence->advance(parts_.forward.chosen()[chosen + static_cast<std::size_t>(i)], parts_.drafts);
      });
    }
    chosen += static_cast<std::size_t>(part.rows);
  }
  std::span<const float> logits = logits_;
  const auto vocabulary = static_cast<std::size_t>(parts_.model->config.vocabulary);
  for (const Part& part : on_host_) {
    const auto own = logits.first(vocabulary * static_cast<std::size_t>(part.rows));
    logits = logits.subspan(own.size());
    take_logits_of(part, own);
  }
}

}  // namespace baton
