// SPDX-License-Identifier: Apache-2.0
// The probe of a turn: a request that the engine makes itself while a turn of method auto is written, with the turn's
// prompt and the first tokens of its answer. A turn whose prompt was exact is rectified by its probe, a rectified one
// is computed exactly, and the divergence of both is what rectification leaves in the turn's place
// (docs/decisions/auto.md). A probe computes its prompt meanwhile, and waits behind it until the turn has written
// enough, so that little is left when the turn ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/reuse/decision.h"

namespace baton {

/// The first rows of an answer with their logits, until the turn's probe has compared them. The engine's thread only,
/// but for place().
class MeasuredTurn {
 public:
  /// `known`: enough is known about the place, so that more rows can be waited for.
  MeasuredTurn(PlaceId place, std::int32_t vocabulary, bool known);

  PlaceId place() const { return place_; }
  bool full() const { return rows_.size() >= max_rows_; }
  /// Keeps one more row [V]. Without memory for it, none is kept.
  void keep(std::span<const float> logits) noexcept;
  const std::vector<std::vector<float>>& rows() const { return rows_; }
  /// The turn is full or has ended, with these tokens. Its probe may go on. If there is no memory for
  /// them, the turn tells nothing.
  void set_answer(const std::vector<TokenId>& tokens) noexcept;
  bool has_answer() const { return has_answer_; }
  const std::vector<TokenId>& answer() const { return answer_; }
  /// Rows that a probe compares; rows behind a stop string belong to tokens that the answer has lost. 0: too few.
  std::size_t compared() const;

  bool has_probe = false;  // it has been made

 private:
  PlaceId place_;
  std::size_t max_rows_;
  std::vector<std::vector<float>> rows_;
  bool has_answer_ = false;
  std::vector<TokenId> answer_;
};

/// True when a probe can rectify the prompt: it holds a segment that method auto might take.
bool can_be_measured(const GenerationRequest& turn);

/// A turn that has written at least one token.
struct WrittenTurn {
  const GenerationRequest& request;
  const ReuseDecision& decision;
  const GenerationResult& result;
};
/// Makes the probe of a turn. Its answer is forced to the turn's first token, until complete_probe gives it the others.
/// `levels`: the model's, not empty. `on_measured` is called when the probe has ended, if it reused the KV that it
/// should.
GenerationRequest make_probe(const WrittenTurn& turn, std::shared_ptr<const MeasuredTurn> kept,
                             const RelayLevels& levels, std::function<void(const RelayObservation&)> on_measured);
/// Forces the probe's answer to that of its turn, which has one (MeasuredTurn::compared is not 0).
void complete_probe(GenerationRequest& probe, const MeasuredTurn& turn);

/// An engine's calibration, and the turns by which method auto measures it. A turn's first logits are kept, and a probe
/// compares them with those of the other way to obtain its KV. All members are safe from any thread. The object must
/// outlive the probes that it makes.
class RelayMeasuring {
 public:
  /// `vocabulary`: the model's; it bounds the memory of a turn's logits.
  explicit RelayMeasuring(std::int32_t vocabulary) : vocabulary_(vocabulary) {}

  Calibration calibration() const;
  /// Replaces the calibration. `changed_history` then returns nothing unless the history is the one that was measured.
  void set_calibration(Calibration calibration);
  /// Returns the history if turns were counted or measured since the last call, else nothing.
  std::optional<RelayHistory> changed_history();
  /// Calls `read` with the calibration, which is not copied, and returns what it returns.
  template <typename Read>
  auto with_calibration(const Read& read) const {
    const std::lock_guard lock(mutex_);
    return read(calibration_);
  }

  /// Counts a turn of method auto for its place. Returns where its logits are to be kept, or null when it is not to be
  /// measured.
  std::shared_ptr<MeasuredTurn> begin(const GenerationRequest& request, const ReuseDecision& decision);
  /// Returns the probe of a measured turn, or nothing if the model has no levels by now.
  std::optional<GenerationRequest> probe_of(const WrittenTurn& written, const std::shared_ptr<MeasuredTurn>& turn);
  /// Number of turns that are being measured for places about which too little is known.
  std::int32_t measuring() const;
  /// Number of turns that have been measured.
  std::int64_t measured() const;

 private:
  std::int32_t vocabulary_;
  mutable std::mutex mutex_;
  Calibration calibration_;                            // guarded by mutex_
  bool history_changed_ = false;                       // guarded by mutex_
  std::int64_t turns_ = 0;                             // guarded by mutex_; that have been measured
  std::vector<std::weak_ptr<MeasuredTurn>> measured_;  // guarded by mutex_; at most kMaxMeasured, some expired
};

}  // namespace baton
