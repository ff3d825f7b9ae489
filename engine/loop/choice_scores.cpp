// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/choice_scores.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace baton {
namespace {

/// Of the logits that are finite.
double log_sum_exp(std::span<const float> logits) {
  double most = -HUGE_VAL;
  for (const float logit : logits) {
    if (std::isfinite(logit)) most = std::max(most, static_cast<double>(logit));
  }
  if (most == -HUGE_VAL) throw std::runtime_error("expected at least one finite logit, found none");
  double sum = 0.0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) sum += std::exp(static_cast<double>(logit) - most);
  }
  return most + std::log(sum);
}

double logit_of(std::span<const float> logits, TokenId id) {
  const float logit = logits[static_cast<std::size_t>(id)];
  return std::isfinite(logit) ? static_cast<double>(logit) : -HUGE_VAL;
}

}  // namespace

ChoiceScores::ChoiceScores(std::vector<std::vector<TokenId>> choices, std::vector<TokenId> eos)
    : choices_(std::move(choices)), eos_(std::move(eos)), ends_(choices_.size()), scores_(choices_.size()) {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    ends_[i] = !eos_.empty() && std::any_of(choices_.begin(), choices_.end(), [&](const auto& other) {
      return other.size() > choices_[i].size() && std::equal(choices_[i].begin(), choices_[i].end(), other.begin());
    });
  }
}

std::span<const TokenId> ChoiceScores::running() const {
  if (!begun_ || at_ == choices_.size()) return {};
  return std::span(choices_[at_]).first(rows(at_));
}

void ChoiceScores::skip_scored() {
  while (at_ < choices_.size() && rows(at_) == 0) ++at_;
}

bool ChoiceScores::take(std::span<const float> logits) {
  const double sum = log_sum_exp(logits);
  if (!begun_) {
    for (std::size_t i = 0; i < choices_.size(); ++i) scores_[i] = logit_of(logits, choices_[i].front()) - sum;
    begun_ = true;
    skip_scored();
    return true;
  }
  const std::vector<TokenId>& choice = choices_[at_];
  if (++run_ < choice.size()) {
    scores_[at_] += logit_of(logits, choice[run_]) - sum;
  } else {
    double end = 0.0;  // probability
    for (const TokenId id : eos_) end += std::exp(logit_of(logits, id) - sum);
    scores_[at_] += std::log(end);
  }
  if (run_ < rows(at_)) return false;
  run_ = 0;
  ++at_;
  skip_scored();
  return true;
}

std::vector<double> ChoiceScores::probabilities() const {
  const double most = *std::max_element(scores_.begin(), scores_.end());
  std::vector<double> parts;
  double sum = 0.0;
  for (const double score : scores_) {
    parts.push_back(most == -HUGE_VAL ? 1.0 : std::exp(score - most));  // none is possible: all alike
    sum += parts.back();
  }
  for (double& part : parts) part /= sum;
  return parts;
}

const std::vector<TokenId>& ChoiceScores::best() const {
  return choices_[static_cast<std::size_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin())];
}

}  // namespace baton
