// SPDX-License-Identifier: Apache-2.0
// LinearFit: finds the linear correction of a place by ridge regression over the texts that were seen there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/reuse/corrections/linear_correction.h"

namespace baton {

struct LinearFitOptions {
  std::int32_t rank = 256;  // of the map, at most; 0: as it comes
  /// Up to so many inputs (L * 2 K D) all tokens count, through their covariance; above, `most_tokens` of them do, or
  /// as many as fit in `most_bytes`, evenly drawn, through their inner products.
  std::int64_t most_inputs = 2048;
  std::int64_t most_tokens = 2048;
  std::int64_t most_bytes = std::int64_t{512} << 20;
};

/// One thread at a time.
class LinearFit {
 public:
  explicit LinearFit(AnchorShape shape, const LinearFitOptions& options = {});
  ~LinearFit();
  LinearFit(LinearFit&&) noexcept;

  /// A text of n tokens: KV as it was handed over and as it is in the place, [L, n, 2 K D] bf16. One text in eight is
  /// set aside to choose the penalty by, and to say what the map leaves.
  void add(std::span<const std::uint16_t> base, std::span<const std::uint16_t> truth, std::int32_t n);

  std::int32_t texts() const;
  std::int64_t tokens() const;
  /// Null: fewer than two texts, one of them set aside.
  std::shared_ptr<const LinearCorrection> fit() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The changes of n tokens, [n, (L - 1) * 2 K D], by the definition: for tests and for what is not hot.
std::vector<float> apply(const LinearCorrection& correction, std::span<const std::uint16_t> base, std::int32_t n);

}  // namespace baton
