// SPDX-License-Identifier: Apache-2.0
// StepRunner: runs engine steps. A step is a transaction: plan rows (step_plan.h), run them, then commit, or end the
// requests that took part (docs/decisions/memory.md).
#pragma once

#include <span>
#include <vector>

#include "engine/loop/request_end.h"
#include "engine/loop/step_plan.h"

namespace baton {

/// Used by the engine's thread only.
class StepRunner {
 public:
  StepRunner(EngineParts& parts, RequestEnd& end) : parts_(parts), end_(end) {}

  /// Runs one step. Returns false if there were no rows, or if the step failed.
  bool step();
  /// Takes the logits [V] after a sequence's prompt, and chooses its first token from them.
  void take_logits(Sequence& sequence, std::span<const float> logits);

 private:
  /// The rows of one sequence in a step.
  struct Part {
    Sequence* sequence;
    std::int32_t rows;
  };

  std::vector<SequenceSnapshot> snapshots();
  void find_drafts(std::span<const SequenceSnapshot> sequences);
  void add_sequence_rows(const StepPlan& plan);
  void wait_for_layers();
  bool run_rows();
  void commit(std::int32_t decoding, std::int32_t prompt_rows, double ms);
  void count_measuring(std::int32_t decoding, std::int32_t other_rows, double ms);
  void store_prefixes();
  void report_progress();
  void take_copy_times();
  const std::vector<TokenId>* decoded(RequestId id) const;
  void take_tokens();
  void begin_probes();
  void take_logits_of(const Part& part, std::span<const float> logits);
  template <class Advance>
  void take(Sequence& sequence, const Advance& advance);

  EngineParts& parts_;
  RequestEnd& end_;
  StepRows rows_;
  std::vector<Part> in_step_;      // the sequences of the step, in the order of their rows
  std::vector<Part> on_device_;    // sequences whose tokens the backend chooses; `rows`: their rows with logits
  std::vector<Part> on_host_;      // sequences whose tokens the host chooses from the logits; `rows` as above
  std::span<const float> logits_;  // the logits of the step, valid until the next step
  std::vector<float> scratch_;
  const std::vector<TokenId> no_tokens_;  // shown to early prompts for a tentative answer, which may change
};

}  // namespace baton
