// SPDX-License-Identifier: Apache-2.0
// Intervals of paired differences and of means over questions (docs/protocol.md).
#pragma once

#include <cstdint>
#include <span>

namespace baton::cli {

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// The 95 % interval of the difference of two paired proportions by Newcombe's method 10 (Statistics in Medicine 17,
/// 1998): Wilson's intervals of both, with the correlation of the pairs. `both`, `first`, `second`, `neither`: numbers
/// of pairs in which both succeed, only the first, only the second, and none. The difference is first minus second.
Interval newcombe_interval(std::int64_t both, std::int64_t first, std::int64_t second, std::int64_t neither);

/// The 95 % percentile bootstrap interval of sum(values) / sum(weights): `draws` draws of pairs (value, weight) with
/// replacement. The same arguments give the same interval on every machine. {0, 0} without weight.
Interval bootstrap_interval(std::span<const double> values, std::span<const double> weights, int draws = 2000,
                            std::uint64_t seed = 0);

}  // namespace baton::cli
