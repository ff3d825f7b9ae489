// SPDX-License-Identifier: Apache-2.0
// The engine's thread: runs steps and delivers answers.
#include "engine/loop/engine_core.h"

#include <cmath>

#include "engine/loop/hand_over.h"
#include "engine/loop/scheduler.h"

namespace baton {
namespace {

constexpr std::int32_t kIdleProbeRows = 64;  // of a step in which nothing else runs; a new request waits for this step

}  // namespace

void EngineCore::loop() noexcept {
  for (bool open = true; open;) {
    try {
      open = wait_for_work();
      if (!open) break;
      apply_cancels();
      admit();
      admit_probe();
      if (!running_.empty() || ahead_.has_work(free_bytes(), {})) step();
    } catch (const std::exception& error) {
      recover(message_of(error));
    } catch (...) {  // a host's callback may throw anything
      recover(kCallbackThrew);
    }
  }
  ahead_.clear();
  for (auto* list : {&running_, &waiting_, &probes_}) {
    while (!list->empty()) end(*list, list->begin(), FinishReason::cancelled, "");
  }
  prefixes_.clear();
  store_.close();
}

bool EngineCore::wait_for_work() {
  std::vector<Order> orders;
  bool forget_all = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      return stopping_ || !incoming_.empty() || !cancelled_.empty() || !cancelling_.empty() || !orders_.empty() ||
             forget_all_ || !running_.empty() || !waiting_.empty() || !probes_.empty() ||
             ahead_.has_work(free_bytes(), {});
    });
    while (!incoming_.empty()) {
      waiting_.push_back(std::move(incoming_.front()));
      incoming_.pop_front();
    }
    if (cancelling_.empty()) cancelling_.swap(cancelled_);
    orders.swap(orders_);
    forget_all = std::exchange(forget_all_, false);
    if (!orders.empty()) stats_.busy_ahead = true;
    if (stopping_) return false;
  }
  for (Order& order : orders) {
    if (!try_to([&] { order(ahead_); })) forget_all = true;
  }
  if (forget_all) ahead_.clear();
  try_to([&] { store_.settle(); });  // anchors may have been charged to the budget since the last step
  count_kv();
  return true;
}

/// The failure may have touched any request that had begun, so all of them end. Where none had, the first that waits
/// ends, so that a lasting shortage ends requests one by one.
void EngineCore::recover(const char* error) noexcept {
  ahead_.clear();
  placed_.clear();
  const auto begun = [](const auto& one) { return one->cache_bytes() > 0; };
  bool any = !running_.empty();
  while (!running_.empty()) end(running_, running_.begin(), FinishReason::error, error);
  for (auto at = waiting_.end(); (at = std::find_if(waiting_.begin(), waiting_.end(), begun)) != waiting_.end();) {
    any = true;
    end(waiting_, at, FinishReason::error, error);
  }
  if (any) return;
  if (!waiting_.empty()) return end(waiting_, waiting_.begin(), FinishReason::error, error);
  std::unique_ptr<Sequence> arrived;  // it could not even be moved to those that wait
  {
    const std::lock_guard lock(mutex_);
    if (incoming_.empty()) return;
    arrived = std::move(incoming_.front());
    incoming_.pop_front();
  }
  end(std::move(arrived), FinishReason::error, error);
}

/// True when a sequence was decoding before the prompt that is served next arrived: its steps keep their bound. A
/// probe disturbs all of them.
bool EngineCore::disturbs(const std::vector<Pending>& pending) const {
  const Sequence* next = nullptr;
  double deadline = 0;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (pending[i].decoding || pending[i].tokens == 0 || (next != nullptr && pending[i].deadline >= deadline)) continue;
    next = running_[i].get();
    deadline = pending[i].deadline;
  }
  return next != nullptr && std::any_of(running_.begin(), running_.end(), [&](const auto& one) {
           return one->decoding() && !one->state.probe &&
                  (next->state.probe || one->prompt.prefilled_at() < next->state.submitted);
         });
}

std::int32_t EngineCore::prompt_rows(const std::vector<Pending>& pending) {
  std::int32_t decoding = 0, left = 0;
  for (const Pending& one : pending) (one.decoding ? decoding : left) += one.tokens;
  if (left == 0) return 0;
  const bool idle = std::all_of(running_.begin(), running_.end(), [](const auto& one) { return one->state.probe; });
  if (decoding == 0) return idle ? std::min(kIdleProbeRows, options_.max_step_rows) : options_.max_prefill_rows;
  const std::int32_t max_rows = std::max(options_.max_step_rows - decoding, 1);
  if (!disturbs(pending)) return rows_before_siblings({spare_.plain_ms(decoding), costs_.row_ms()}, decoding, max_rows);
  return rows_in_tiles(spare_.next(decoding, costs_.row_ms()), decoding, left, max_rows);
}

/// Drafts take rows that the step's prompts and early prompts do not get.
void EngineCore::find_drafts() {
  DraftLength::Step step;
  for (const auto& sequence : running_) step.rows += sequence->decoding() && !sequence->state.probe ? 1 : 0;
  step.tokens = step.rows;
  const std::int32_t room = options_.max_step_rows / std::max(step.rows, 1) - 1;  // of each sequence
  for (const auto& sequence : running_) {
    if (!sequence->decoding()) continue;
    const bool wanted =
        sequence->answer.is_forced() || (sequence->answer.scores() != nullptr && sequence->answer.scores()->begun());
    const bool certain = sequence->speculation.is_checking() || (wanted && !options_.token_by_token);
    const bool whole = certain || options_.draft_always;
    const std::int32_t max_tokens = certain ? kMaxWholeDraft : options_.max_draft;
    const Draft draft = find_draft(*sequence, std::clamp(room, 0, max_tokens));
    const auto found = static_cast<std::int32_t>(draft.tokens.size());
    sequence->speculation.set_draft(draft, whole ? found : drafts_.choose(draft, costs_.row_ms(), step));
  }
}

/// While all that decode are tentative, their exact prompts come first: what is written meanwhile may not stay.
std::int32_t EngineCore::rows_of_twins(std::int32_t decoding) const {
  const bool tentative = std::all_of(running_.begin(), running_.end(), [](const auto& one) {
    return !one->decoding() || one->speculation.is_tentative() || one->state.probe;
  });
  const bool twins =
      std::any_of(running_.begin(), running_.end(), [&](const auto& one) { return ahead_.has(one->request().early); });
  if (!tentative || !twins || decoding == 0) return 0;
  return rows_before_siblings({spare_.plain_ms(decoding), costs_.row_ms()}, decoding, options_.max_step_rows);
}

void EngineCore::step() {
  find_drafts();
  const bool prefilling = std::any_of(running_.begin(), running_.end(),
                                      [](const auto& one) { return !one->decoding() && !one->state.probe; });
  const bool probing = !prefilling && !ahead_.has_work(free_bytes(), running_prefixes());
  std::vector<Pending> pending;
  for (const auto& sequence : running_) {
    if (sequence->state.probe)  // all of its rows are like those of a prompt, the last one
      pending.push_back({probing ? sequence->pending() : 0, false, HUGE_VAL});
    else
      pending.push_back({sequence->pending(), sequence->decoding(),
                         sequence->prompt.deadline(costs_.row_ms(), sequence->state.submitted)});
  }
  std::int32_t decoding = 0;  // rows
  for (const Pending& one : pending) decoding += one.decoding ? one.tokens : 0;
  const std::vector<std::int32_t> share = plan_step(pending, prompt_rows(pending));

  rows_.clear();
  std::vector<Part> parts;
  std::vector<Part> alone;     // sequences whose tokens the backend chooses, with the number of rows with logits
  std::vector<Part> sampling;  // sequences that get their logits, with the rows:
  std::vector<std::int32_t> others;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (share[i] == 0) continue;
    Sequence& sequence = *running_[i];
    if (sequence.state.probe && sequence.decoding()) sequence.speculation.shorten_draft(share[i] - 1);
    const std::int32_t count = sequence.add_rows(share[i], rows_);
    parts.push_back({&sequence, count});
    if (count != sequence.pending()) continue;
    const Part asking{&sequence, sequence.decoding() ? count : 1};
    const bool chosen = chooses_alone(sequence);
    (chosen ? alone : sampling).push_back(asking);
    for (std::int32_t ahead = 0; ahead < asking.rows; ++ahead) {
      const auto row = static_cast<std::int32_t>(rows_.size() - asking.rows + ahead);
      (chosen ? rows_.logits_rows : others).push_back(row);
      if (chosen) rows_.choices.push_back(sequence.answer.choice(ahead));
    }
  }
  rows_.logits_rows.insert(rows_.logits_rows.end(), others.begin(), others.end());

  const auto prompt_rows = static_cast<std::int32_t>(rows_.size()) - decoding;
  ahead_.refresh([this](RequestId id) { return decoded(id); });
  const std::int32_t twin_rows = rows_of_twins(decoding);
  ahead_.add_rows(rows_, decoding, prefilling, free_bytes(), running_prefixes(), twin_rows);
  const std::int32_t rows_ahead = ahead_.rows();
  if (rows_.size() == 0) return count_kv();

  wait_for_layers(parts);
  std::span<const float> logits;
  const Clock::time_point begin = Clock::now();
  try {
    logits = forward_.run(rows_);
  } catch (const std::exception& error) {
    // The step is retried without probes and early prompts, unless it sums attention, which a retry would count twice.
    const bool summed = std::any_of(rows_.caches.begin(), rows_.caches.end(),
                                    [](const KvCache* cache) { return cache->received() != nullptr; });
    const bool dropped = drop_probe() || ahead_.drop_parts() || ahead_.evict_last(0);
    if (dropped && !summed) return;
    for (const Part& part : parts) end(part.sequence, FinishReason::error, message_of(error));
    return;
  }
  const double ms = milliseconds(Clock::now() - begin);
  if (prompt_rows > 0) costs_.on_step(rows_.path, forward_.times());
  spare_.on_step(decoding, prompt_rows + rows_ahead, ms);
  if (prompt_rows + rows_ahead == 0) drafts_.on_step(decoding, ms);
  take_copy_times();
  const auto sampled = others.size() * static_cast<std::size_t>(model_->config.vocabulary);
  ahead_.commit(logits.subspan(sampled));
  count_kv();  // includes the caches that were started for rows ahead
  std::size_t row = 0;
  for (const Part& part : parts) {
    part.sequence->commit(std::span(rows_.path).subspan(row, static_cast<std::size_t>(part.rows)), forward_.times());
    row += static_cast<std::size_t>(part.rows);
    part.sequence->prompt.fall_back(part.sequence->cache());
  }
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    stats_.rows += rows_.size();
    stats_.rows_ahead += rows_ahead;
    stats_.spare_rows = spare_.knee();
  }
  store_prefixes(parts);
  report_progress(parts);
  std::size_t chosen = 0;
  for (const Part& part : alone) {
    if (part.sequence->decoding()) {
      take(*part.sequence, [&](std::int32_t i) {
        return part.sequence->advance(forward_.chosen()[chosen + static_cast<std::size_t>(i)], drafts_);
      });
    }
    chosen += static_cast<std::size_t>(part.rows);
  }
  sample(sampling, logits);
  verify_complete();
}

void EngineCore::wait_for_layers(const std::vector<Part>& parts) {
  std::vector<Sequence*> arriving;
  for (const Part& part : parts) {
    if (part.sequence->prompt.assembly().is_uploading()) arriving.push_back(part.sequence);
  }
  if (arriving.empty()) return;
  rows_.before_layer = [this, arriving = std::move(arriving)](std::int32_t layer) {
    for (Sequence* sequence : arriving)
      sequence->prompt.assembly().insert_uploaded(*backend_, forward_.angles(), sequence->cache(), layer);
  };
}

/// Where other sequences decode, a prompt's KV is stored while it is computed: all of it at its end would make them
/// wait. Devices copy without the host.
void EngineCore::store_prefixes(const std::vector<Part>& parts) {
  constexpr std::int32_t kPiece = 128;  // tokens
  if (!device_.host_memory || running_.size() < 2) return;
  for (const Part& part : parts) {
    const LivePrefix live = live_prefix(*part.sequence);
    const auto tokens = static_cast<std::int32_t>(live.tokens.size());  // the cache may hold drafts behind them
    const std::int32_t ready = std::min(live.ready, tokens) / kPiece * kPiece;
    if (ready <= part.sequence->prompt.stored()) continue;
    part.sequence->prompt.set_stored(ready);
    try_to([&] { prefixes_.add(*backend_, *live.cache, live.tokens.first(static_cast<std::size_t>(ready))); });
  }
}

/// A sequence that ends here has rows left, so it is none of those that get a token in this step.
void EngineCore::report_progress(const std::vector<Part>& parts) {
  const Clock::time_point now = Clock::now();
  for (const Part& part : parts) {
    try {
      part.sequence->prompt.report(now, options_.progress_ms, part.sequence->cache());
    } catch (const std::exception& error) {  // the callback threw
      end(part.sequence, FinishReason::error, message_of(error));
    } catch (...) {
      end(part.sequence, FinishReason::error, kCallbackThrew);
    }
  }
}

const std::vector<TokenId>* EngineCore::decoded(RequestId id) const {
  static const auto& none = *new std::vector<TokenId>;  // tentative tokens may change
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s->id() == id; });
  if (found == running_.end()) return nullptr;
  return (*found)->speculation.is_tentative() ? &none : &(*found)->result().tokens;
}

void EngineCore::sample(std::span<const Part> parts, std::span<const float> logits) {
  const auto vocabulary = static_cast<std::size_t>(model_->config.vocabulary);
  for (const Part& part : parts) {
    const auto own = logits.first(vocabulary * static_cast<std::size_t>(part.rows));
    logits = logits.subspan(own.size());
    if (!part.sequence->decoding()) continue;  // it fell back
    take(*part.sequence, [&](std::int32_t i) {
      const auto row = own.subspan(vocabulary * static_cast<std::size_t>(i), vocabulary);
      scratch_.assign(row.begin(), row.end());
      return part.sequence->advance(scratch_, drafts_);
    });
  }
}

void EngineCore::follow(Sequence& sequence) noexcept {
  const GenerationRequest& request = sequence.request();
  if (!request.reuse.method->anchors || request.output_slot.empty() || !request.reuse.anchors.aligned) return;
  anchors_.follow(sequence.id(), request.output_slot, request.reuse.anchors.pool, sequence.result().tokens);
}

void EngineCore::end(Sequence* sequence, FinishReason reason, const char* error) noexcept {
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == sequence; });
  if (found != running_.end()) end(running_, found, reason, error);
}

void EngineCore::end(List& list, List::iterator at, FinishReason reason, const char* error) noexcept {
  std::unique_ptr<Sequence> sequence = std::move(*at);
  list.erase(at);
  end(std::move(sequence), reason, error);
}

void EngineCore::end(std::unique_ptr<Sequence> sequence, FinishReason reason, const char* error) noexcept {
  if (reason != FinishReason::eos) {
    sequence->keep_chosen();
    try_to([&] { keep_for_followers(*sequence); });
  }
  ahead_.forget(sequence->request().early);  // an early prompt that the request never took over
  try {
    sequence->close(reason, error);
  } catch (const std::exception& wrong) {
    reason = FinishReason::error;
    sequence->fail(message_of(wrong));
  }
  const std::vector<TokenId>* answer = reason == FinishReason::eos ? &sequence->result().tokens : nullptr;
  if (!try_to([&] { ahead_.ended(sequence->id(), answer); })) ahead_.clear();
  try_to([&] {
    anchors_.ended(sequence->id(), sequence->result().tokens,
                   sequence->cache_bytes() > 0 ? sequence->cache().length() - sequence->state.prompt_length : 0);
  });
  if (answer != nullptr) {
    try_to([&] { hand_over(*sequence, *backend_, store_, prefixes_, anchors_); });
    try_to([&] { give_texts(*sequence); });
    try_to([&] { make_probe_of(*sequence); });
  }
  count_kv();
  try_to([&] { sequence->deliver(); });  // the host's own on_finished may throw
}

void EngineCore::take_copy_times() {
  const std::vector<double>& taken = forward_.times().alongside;
  for (std::size_t i = 0; i < taken.size() && taken.size() == placed_.size(); ++i) {
    for (const auto& sequence : running_) {
      if (sequence->id() == placed_[i].id) sequence->result().prefill.copy += taken[i];
    }
  }
  placed_.clear();
}

std::int64_t EngineCore::kv_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& sequence : running_) bytes += static_cast<std::int64_t>(sequence->cache_bytes());
  return bytes;
}

void EngineCore::count_kv() noexcept {
  bool busy = false;
  try_to([&] { busy = ahead_.has_work(free_bytes(), running_prefixes()); });
  const std::lock_guard lock(mutex_);
  stats_.busy_ahead = busy;
  stats_.kv_bytes = kv_bytes() + ahead_.bytes();
  stats_.kv_peak_bytes = std::max(stats_.kv_peak_bytes, stats_.kv_bytes);
}

}  // namespace baton
