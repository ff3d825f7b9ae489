// SPDX-License-Identifier: Apache-2.0
// CorrectionLearner: collects, for each place of a model's prompts, the change of the texts' KV, and fits the linear
// corrections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/reuse/prompt_part.h"
#include "engine/reuse/rectify/corrections.h"

namespace baton::inline v1::lab {

struct LinearFitOptions {
  std::int32_t rank = 256;  // maximum rank of the map; 0: not limited
  /// Up to max_inputs inputs (2 K D of all layers), the fit uses the covariance of all tokens. With more inputs it uses
  /// the inner products of at most max_tokens tokens, evenly drawn, or as many as fit into max_bytes.
  std::int64_t max_inputs = 2048;
  std::int64_t max_tokens = 2048;
  std::int64_t max_bytes = std::int64_t{512} << 20;
};

/// Not thread-safe.
class LinearFit {
 public:
  explicit LinearFit(const KvWidth& shape, const LinearFitOptions& options = {});
  ~LinearFit();
  LinearFit(LinearFit&&) noexcept;

  /// Adds a text of n tokens: its KV as handed over and as computed in the place, each of all layers [n, 2 K D] bf16.
  /// One text in eight is held out, to choose the penalty and to measure the remaining change. Throws
  /// std::invalid_argument when the sizes differ from the shape.
  void add(std::span<const std::uint16_t> base, std::span<const std::uint16_t> truth, std::int32_t n);

  std::int32_t texts() const;
  std::int64_t tokens() const;
  /// Returns the correction; null with fewer than two texts, since one must be held out.
  std::shared_ptr<const LinearCorrection> fit() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the changes of n tokens, [n, 2 K D of all layers but the first], computed on the host by the definition; for
/// tests and code that is not performance-critical.
std::vector<float> apply(const LinearCorrection& correction, std::span<const std::uint16_t> base, std::int32_t n);

struct LearnedPlace {
  PlaceKey key;
  std::set<std::string> readers;  // the turns whose prompts hold the place
  std::int32_t texts = 0;
  std::int64_t tokens = 0;
  std::shared_ptr<const LinearCorrection> correction;  // null: too few texts
};

/// All members are safe from any thread.
class CorrectionLearner {
 public:
  explicit CorrectionLearner(const LinearFitOptions& options = {}) : options_(options) {}

  /// Adds a sample if its text is an answer: the change of other texts hardly affects their readers.
  void add(const PlaceSample& sample);

  /// Fits and returns all places, in the order in which they were first seen. on_progress gets the fraction done, 0 to
  /// 1. Ends early when stopped.
  std::vector<LearnedPlace> fit(const std::function<void(double)>& on_progress, const std::stop_token& stop) const;

 private:
  LinearFitOptions options_;
  mutable std::mutex mutex_;
  struct Place {
    PlaceKey key;
    std::set<std::string> readers;
    LinearFit fit;
  };
  std::vector<Place> places_;
};

}  // namespace baton::inline v1::lab
