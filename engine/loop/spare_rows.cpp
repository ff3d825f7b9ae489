// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/spare_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace baton {
namespace {

constexpr double kFirstLimit = 4.0;       // initial limit, rows
constexpr double kSaved = 16.0;           // maximum saved rows, if above twice the limit
constexpr double kForced = 64.0;          // rows beyond the saved ones from which a step is not measured
constexpr std::int32_t kPlainEvery = 64;  // steps between two undisturbed ones
constexpr std::int32_t kQuiet = 4;        // successive steps without added rows; the last is measured, since rows of
                                          // prompts make the next steps longer, too
constexpr double kNewest = 0.2;           // weight of the newest step without added rows in the mean
constexpr double kNewestOfAll = 0.05;     // weight of the newest step in the other means
constexpr double kAim = 0.95;             // target, as a fraction of the allowed slow-down
constexpr double kGain = 0.05;            // maximum change of the limit in a step, as a fraction
constexpr double kUsed = 0.8;             // use of the limit, as a fraction, from which it may grow

void add(double& mean, double value, double newest) { mean += newest * (value - mean); }

}  // namespace

SpareRows::SpareRows(double slowdown, std::int32_t max_rows) : slowdown_(slowdown), max_rows_(max_rows) {}

/// A new level begins with the limit of the next smaller level.
SpareRows::Level& SpareRows::level(std::int32_t decoding) {
  const auto [at, added] = levels_.try_emplace(decoding);
  if (added) at->second.limit = at == levels_.begin() ? std::min(kFirstLimit, max_rows_) : std::prev(at)->second.limit;
  return at->second;
}

std::int32_t SpareRows::next(std::int32_t decoding, double row_ms) {
  Level& now = level(decoding);
  asked_ = true;
  if (now.plain == 0.0) return 0;
  if (now.rows == 0.0 && row_ms > 0.0) now.limit = std::clamp(kAim * slowdown_ * now.plain / row_ms, 1.0, max_rows_);
  now.credit = std::min(now.credit + now.limit, std::max(kSaved, 2 * now.limit));
  if (++age_ > kPlainEvery) return 0;
  return static_cast<std::int32_t>(std::clamp(now.credit, 0.0, max_rows_));
}

void SpareRows::on_step(std::int32_t decoding, std::int32_t spare, double milliseconds) {
  quiet_ = spare == 0 ? quiet_ + 1 : 0;
  const bool undisturbed = quiet_ >= kQuiet;
  if (undisturbed) age_ = 0;
  if (decoding == 0) return;
  Level& now = level(decoding);
  if (undisturbed || (spare == 0 && now.plain == 0.0)) {
    add(now.plain, milliseconds, now.settled ? kNewest : 1.0);
    now.settled = undisturbed;
  }
  if (!std::exchange(asked_, false) || now.plain == 0.0) return;
  if (spare > now.credit + kForced) {
    now.credit = -kSaved;
    return;
  }
  now.credit -= spare;
  add(now.slower, milliseconds / now.plain - 1.0, kNewestOfAll);
  add(now.rows, spare, kNewestOfAll);
  if (spare == 0) return;
  const double aim = kAim * slowdown_;
  const double room = std::clamp((aim - now.slower) / aim, -1.0, 1.0);
  if (room > 0.0 && now.rows < kUsed * now.limit) return;
  now.limit = std::clamp(now.limit * (1.0 + kGain * room), 1.0, max_rows_);
}

double SpareRows::plain_ms(std::int32_t decoding) const {
  const auto found = levels_.find(decoding);
  return found == levels_.end() ? 0.0 : found->second.plain;
}

std::int32_t SpareRows::knee() const {
  const auto one = levels_.find(1);
  return one == levels_.end() || one->second.plain == 0.0 ? 0 : static_cast<std::int32_t>(one->second.limit);
}

}  // namespace baton
