// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/speculation.h"

#include <algorithm>
#include <bit>

namespace baton {
namespace {

constexpr std::int32_t kMaxMatch = 32;                     // a longer match says no more
constexpr double kNewestChoice = 0.05, kNewestStep = 0.2;  // weights of the newest measurement in the means
constexpr double kFewRows = 1.5;  // a row of a step of few rows takes this times one of a step of many, until measured
constexpr double kDraftGain = 1.02;  // required gain of a longer draft: times are measured with errors

std::int32_t match_at(std::span<const TokenId> tokens, std::size_t end) {
  const std::size_t longest = std::min<std::size_t>(end, kMaxMatch);
  std::size_t length = 0;
  while (length < longest && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
  return static_cast<std::int32_t>(length);
}

}  // namespace

Draft find_draft(std::span<const TokenId> tokens, std::int32_t max_tokens) {
  Draft best;
  if (max_tokens < 1 || tokens.empty()) return best;
  for (std::size_t end = tokens.size() - 1; end >= static_cast<std::size_t>(kMinDraftMatch); --end) {
    if (tokens[end - 1] != tokens.back()) continue;
    const std::int32_t match = match_at(tokens, end);
    if (match < kMinDraftMatch || match <= best.match) continue;
    best = {tokens.subspan(end, std::min(tokens.size() - end, static_cast<std::size_t>(max_tokens))), match};
    if (match == kMaxMatch) break;
  }
  return best;
}

DraftLength::DraftLength(std::int32_t max_rows)
    : right_{0.3, 0.5, 0.6, 0.7, 0.8}, step_ms_(static_cast<std::size_t>(std::max(max_rows, 1)) + 1, 0.0) {}

std::size_t DraftLength::class_of(std::int32_t match) {
  const auto above = static_cast<std::uint32_t>(std::max(match, kMinDraftMatch) - 1);
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(above)) - 1, kClasses - 1);
}

double DraftLength::milliseconds(std::int32_t rows, double row_ms) const {
  std::int32_t known = rows;
  while (known > 0 && step_ms_[static_cast<std::size_t>(known)] == 0.0) --known;
  return known == 0 ? 0.0 : step_ms_[static_cast<std::size_t>(known)] + kFewRows * row_ms * (rows - known);
}

std::int32_t DraftLength::choose(const Draft& draft, double row_ms, Step& step) const {
  const auto max_rows = static_cast<std::int32_t>(step_ms_.size()) - 1;
  if (step.rows > max_rows || row_ms <= 0.0) return 0;
  const double now = milliseconds(step.rows, row_ms);
  if (now <= 0.0) return 0;
  std::int32_t best = 0;
  double best_tokens = step.tokens, best_rate = kDraftGain * step.tokens / now;
  double tokens = step.tokens, all_right = 1.0;
  for (std::int32_t n = 1; n <= static_cast<std::int32_t>(draft.tokens.size()) && step.rows + n <= max_rows; ++n) {
    all_right *= right_[class_of(draft.match + n - 1)];
    tokens += all_right;
    const double rate = tokens / milliseconds(step.rows + n, row_ms);
    if (rate <= best_rate) continue;
    best = n;
    best_rate = rate;
    best_tokens = tokens;
  }
  step.rows += best;
  step.tokens = best_tokens;
  return best;
}

void DraftLength::on_choice(std::int32_t match, bool right) {
  double& mean = right_[class_of(match)];
  mean += kNewestChoice * ((right ? 1.0 : 0.0) - mean);
}

/// A single slow step (the machine did other work) moves the mean by at most a fifth of the mean.
void DraftLength::on_step(std::int32_t rows, double milliseconds) {
  if (rows < 1 || rows >= static_cast<std::int32_t>(step_ms_.size())) return;
  double& mean = step_ms_[static_cast<std::size_t>(rows)];
  mean = mean == 0.0 ? milliseconds : mean + kNewestStep * (std::min(milliseconds, 2.0 * mean) - mean);
}

void Speculation::begin_check(std::vector<TokenId> tentative) noexcept {
  check_ = std::move(tentative);
  draft_.clear();
  expected_.reset();
  tentative_ = written_ = false;
}

std::optional<std::int64_t> Speculation::compare(std::span<const TokenId> answer, bool over) {
  if (check_.empty()) return std::nullopt;
  const auto same = std::mismatch(answer.begin(), answer.end(), check_.begin(), check_.end()).first;
  if (!over && same == answer.end() && answer.size() < check_.size()) return std::nullopt;
  check_.clear();
  return same - answer.begin();
}

Draft Speculation::find(const DraftSource& source, std::int32_t max_tokens) const {
  if (source.written == 0) return {};
  // A forced answer may be longer than the room behind its prompt.
  const std::int32_t left = source.max_tokens - static_cast<std::int32_t>(source.written);
  if (!source.forced.empty() || is_checking()) {
    if (source.summed && source.stops) return {};
    const auto next =
        (source.forced.empty() ? std::span<const TokenId>(check_) : source.forced).subspan(source.written);
    return {next.first(std::min(next.size(), static_cast<std::size_t>(std::min(max_tokens, left)))), 0};
  }
  return source.summed ? Draft{} : find_draft(source.tokens, std::min(max_tokens, left - 1));
}

void Speculation::set_draft(const Draft& draft, std::int32_t tokens) {
  draft_.assign(draft.tokens.begin(), draft.tokens.begin() + tokens);
  drafted_ = 0;
  match_ = draft.match;
  expected_.reset();
  if (match_ > 0) expected_ = draft.tokens.front();
}

Speculation::Chosen Speculation::match_token(TokenId chosen, bool over, DraftLength& drafts) {
  if (over) return Chosen::other;
  if (expected_) {
    drafts.on_choice(match_, chosen == *expected_);
    expected_.reset();
  }
  const auto at = static_cast<std::size_t>(drafted_);
  if (at >= draft_.size() || chosen != draft_[at]) return Chosen::other;
  ++drafted_;
  if (match_ == 0) return Chosen::certain;
  ++match_;
  if (at + 1 < draft_.size()) expected_ = draft_[at + 1];
  return Chosen::guessed;
}

bool Speculation::match_scored() {
  if (static_cast<std::size_t>(drafted_) == draft_.size()) return false;
  ++drafted_;
  return true;
}

}  // namespace baton
