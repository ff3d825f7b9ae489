// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/relay_probe.h"

#include <baton/distributions.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/errors.h"
#include "engine/reuse/auto/auto.h"

namespace baton {
namespace {

constexpr std::size_t kMaxMeasured = 4;  // turns whose logits are kept at once, from the first row to the probe's end
constexpr std::size_t kMaxRows = 48;
constexpr std::size_t kFirstRows = 24;  // in a place that is not known yet: the process may end with the answer
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;  // of all rows
constexpr std::size_t kMinTokens = 8;                     // of an answer

bool is_rectified(const ReuseOptions& reuse, const PromptPart& part) {
  return part.segment && static_cast<std::int32_t>(part.tokens.size()) >= reuse.min_tokens &&
         (reuse.max_hops == 0 || part.segment->hops < reuse.max_hops);
}

/// The fraction of the entries of the texts handed over that was reused.
double reused(const std::vector<PartUse>& uses, const std::vector<std::int64_t>& entries) {
  std::int64_t kept = 0, all = 0;
  for (std::size_t part = 0; part < uses.size(); ++part) {
    if (!uses[part].from_segment) continue;
    kept += uses[part].kv_reused;
    all += entries[part];
  }
  return all == 0 ? 0.0 : static_cast<double>(kept) / static_cast<double>(all);
}

}  // namespace

MeasuredTurn::MeasuredTurn(PlaceId place, std::int32_t vocabulary, bool known)
    : place_(place),
      max_rows_(std::min(known ? kMaxRows : kFirstRows,
                         kMaxBytes / (static_cast<std::size_t>(vocabulary) * sizeof(float)))) {}

void MeasuredTurn::keep(std::span<const float> logits) noexcept {
  if (full() || try_to([&] { rows_.emplace_back(logits.begin(), logits.end()); })) return;
  rows_.clear();
  max_rows_ = 0;
}

void MeasuredTurn::set_answer(const std::vector<TokenId>& tokens) noexcept {
  has_answer_ = true;
  try_to([&] { answer_ = tokens; });
}

std::size_t MeasuredTurn::compared() const {
  const std::size_t rows = std::min(rows_.size(), answer_.size() + 1);
  return answer_.size() < kMinTokens || rows < kMinTokens ? 0 : rows;
}

bool can_be_measured(const GenerationRequest& turn) {
  return std::any_of(turn.prompt.begin(), turn.prompt.end(),
                     [&](const PromptPart& part) { return is_rectified(turn.reuse, part); });
}

GenerationRequest make_probe(const WrittenTurn& written, std::shared_ptr<const MeasuredTurn> kept,
                             const RelayLevels& levels, std::function<void(const RelayObservation&)> on_measured) {
  const GenerationRequest& turn = written.request;
  const GenerationResult& result = written.result;
  const bool was_rectified = result.hops > 0;
  GenerationRequest probe;
  std::vector<std::int64_t> entries;
  std::vector<bool> expected;  // the parts that the probe rectifies
  for (const PromptPart& part : turn.prompt) {
    const bool rectifies = !was_rectified && is_rectified(turn.reuse, part);
    probe.prompt.push_back({part.slot, part.tokens, rectifies ? part.segment : nullptr});
    expected.push_back(rectifies);
    entries.push_back(static_cast<std::int64_t>(part.tokens.size()) * result.kv_entries / result.prompt_tokens);
  }
  if (was_rectified) {
    probe.reuse.method = &prefix_method();
  } else {
    probe.reuse = measuring_options(turn.reuse, written.decision, levels.levels);
  }
  probe.reuse.prefix = false;  // it stores none, and an exact one would hold the texts that are to be rectified
  probe.forced = {result.tokens.front()};
  probe.max_tokens = std::min(static_cast<std::int32_t>(kMaxRows), turn.max_tokens + 1);

  struct Comparison {
    double sum = 0.0;
    std::size_t rows = 0;
  };
  auto compared = std::make_shared<Comparison>();
  probe.callbacks.on_logits = [compared, kept, was_rectified](std::span<const float> logits) {
    if (compared->rows == kept->rows().size()) return;
    const std::span<const float> then = kept->rows()[compared->rows++];
    compared->sum += was_rectified ? divergence(logits, then) : divergence(then, logits);
  };
  const auto guard = [levels](const GenerationResult& of) { return expected_by_guard(levels, of.guard_left); };
  const RelayObservation of_turn{was_rectified ? reused(result.uses, entries) : 0.0, 0.0, guard(result)};
  probe.callbacks.on_finished = [=, on_measured = std::move(on_measured)](const GenerationResult& measured) {
    const std::size_t rows = kept->compared();
    if (measured.reason != FinishReason::eos || rows == 0 || compared->rows != rows) return;
    for (std::size_t part = 0; part < expected.size(); ++part) {
      if (measured.uses[part].from_segment != expected[part]) return;  // evicted since
    }
    const double mean = compared->sum / static_cast<double>(rows);
    if (!std::isfinite(mean)) return;
    RelayObservation found =
        was_rectified ? of_turn : RelayObservation{reused(measured.uses, entries), 0.0, guard(measured)};
    found.divergence = mean;
    on_measured(found);
  };
  return probe;
}

void complete_probe(GenerationRequest& probe, const MeasuredTurn& turn) {
  const std::size_t rows = turn.compared();
  probe.forced.assign(turn.answer().begin(), turn.answer().begin() + static_cast<std::ptrdiff_t>(rows - 1));
  probe.max_tokens = static_cast<std::int32_t>(rows);
}

Calibration RelayMeasuring::calibration() const {
  const std::lock_guard lock(mutex_);
  return calibration_;
}

void RelayMeasuring::set_calibration(Calibration calibration) {
  const std::lock_guard lock(mutex_);
  history_changed_ = history_changed_ && calibration.history == calibration_.history;
  calibration_ = std::move(calibration);
}

std::optional<RelayHistory> RelayMeasuring::changed_history() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(history_changed_, false)) return std::nullopt;
  return calibration_.history;
}

std::shared_ptr<MeasuredTurn> RelayMeasuring::begin(const GenerationRequest& request, const ReuseDecision& decision) {
  if (!decision.measured || !can_be_measured(request)) return nullptr;
  if (request.context && request.context->hops > 0) return nullptr;  // the place did not make that KV approximate
  const PlaceId place = place_of(request.reader, request.prompt);
  const std::lock_guard lock(mutex_);
  history_changed_ = true;
  if (!calibration_.history.wants(place)) return nullptr;
  std::erase_if(measured_, [](const auto& one) { return one.expired(); });
  if (measured_.size() == kMaxMeasured) return nullptr;
  auto turn = std::make_shared<MeasuredTurn>(place, vocabulary_, calibration_.history.knows_enough(place));
  measured_.push_back(turn);
  return turn;
}

std::optional<GenerationRequest> RelayMeasuring::probe_of(const WrittenTurn& written,
                                                          const std::shared_ptr<MeasuredTurn>& turn) {
  const RelayLevels levels = with_calibration([](const Calibration& now) { return now.levels; });
  if (levels.levels.empty()) return std::nullopt;
  return make_probe(written, turn, levels, [this, place = turn->place()](const RelayObservation& observation) {
    const std::lock_guard lock(mutex_);
    calibration_.history.add(place, observation);
    history_changed_ = true;
    ++turns_;
  });
}

std::int64_t RelayMeasuring::measured() const {
  const std::lock_guard lock(mutex_);
  return turns_;
}

std::int32_t RelayMeasuring::measuring() const {
  const std::lock_guard lock(mutex_);
  std::int32_t turns = 0;
  for (const auto& one : measured_) {
    const auto turn = one.lock();
    turns += turn && !calibration_.history.knows_enough(turn->place()) ? 1 : 0;
  }
  return turns;
}

}  // namespace baton
