#include "engine/spare_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace baton {
namespace {

constexpr double kFirstLimit = 4.0;       // rows to begin with
constexpr std::int32_t kPlainEvery = 32;  // steps
constexpr double kNewest = 0.2;           // weight of the newest step in a mean
constexpr double kAim = 0.94;             // the part of the allowed slow-down that is aimed at
constexpr double kMore = 1.03, kLess = 0.97;

void add(double& mean, double value) { mean += kNewest * (value - mean); }

}  // namespace

SpareRows::SpareRows(double slowdown, std::int32_t most) : slowdown_(slowdown), most_(most) {}

/// A new level begins with what the next smaller one has found.
SpareRows::Level& SpareRows::level(std::int32_t decoding) {
  const auto [at, added] = levels_.try_emplace(decoding);
  if (added) at->second.limit = at == levels_.begin() ? std::min(kFirstLimit, most_) : std::prev(at)->second.limit;
  return at->second;
}

std::int32_t SpareRows::next(std::int32_t decoding) {
  Level& now = level(decoding);
  if (now.plain == 0.0 || ++now.age >= kPlainEvery) return 0;
  now.credit += now.limit;
  const double rows = std::floor(now.credit);
  now.credit -= rows;
  return static_cast<std::int32_t>(rows);
}

void SpareRows::on_step(std::int32_t decoding, std::int32_t spare, double milliseconds) {
  Level& now = level(decoding);
  if (spare == 0) {
    if (now.plain == 0.0) now.plain = milliseconds;
    add(now.plain, milliseconds);
    now.age = 0;
    return;
  }
  if (now.plain == 0.0) return;
  add(now.slower, milliseconds / now.plain - 1.0);
  if (now.slower > kAim * slowdown_) {
    now.limit = std::max(1.0, now.limit * kLess);
  } else if (spare >= static_cast<std::int32_t>(now.limit)) {  // it was used
    now.limit = std::min(most_, now.limit * kMore);
  }
}

std::int32_t SpareRows::knee() const {
  const auto one = levels_.find(1);
  return one == levels_.end() || one->second.plain == 0.0 ? 0 : static_cast<std::int32_t>(one->second.limit);
}

}  // namespace baton
