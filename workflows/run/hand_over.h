// SPDX-License-Identifier: Apache-2.0
// The segments of one run: their authors and their remaining readers. A segment is released when its last reader is
// over.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "engine/engine.h"
#include "workflows/plan/plan.h"

namespace baton {

/// The run's thread only.
class RunSegments {
 public:
  explicit RunSegments(const Plan& plan) : plan_(plan), over_(plan.turns.size(), false) {}

  /// Assigns each placeholder of the turn's prompt its segment, if there is one, or where the method reads
  /// across models that of another model, and marks the parts that become segments.
  void attach(std::size_t turn, const InferenceEngine* engine, std::vector<PromptPart>& prompt) const;

  /// How many later turns will read the turn's output.
  std::int64_t output_readers(std::size_t turn) const {
    return static_cast<std::int64_t>(readers_of_output(turn).size());
  }

  /// True when some of those turns run on other models that may read the output.
  bool export_output(std::size_t turn) const { return read_by_other_models(turn, readers_of_output(turn)); }

  /// Takes the segments that the engine made of a prompt (with tokens `prompt`) and of its answer.
  void take(std::size_t turn, const InferenceEngine* engine, const std::vector<PromptPart>& prompt,
            const GenerationResult& result);

  /// The turn is over and reads no more segments.
  void turn_over(std::size_t turn);

  std::size_t size() const { return entries_.size(); }

 private:
  using Key = std::pair<const InferenceEngine*, std::vector<TokenId>>;
  struct Entry {
    SegmentHandle handle;
    std::set<std::size_t> readers;  // turns
  };

  bool read_by_other_models(std::size_t turn, const std::set<std::size_t>& readers) const;
  void attach_portable(const InferenceEngine* engine, PromptPart& part) const;
  std::set<std::size_t> readers_of(const SlotSource& source, std::size_t but) const;
  std::set<std::size_t> readers_of_output(std::size_t turn) const;
  void keep(const InferenceEngine* engine, const std::vector<TokenId>& tokens, SegmentHandle handle,
            std::set<std::size_t> readers);

  const Plan& plan_;
  std::vector<bool> over_;
  std::map<Key, Entry> entries_;  // found by content: equal ids are equal texts, whatever their names
};

}  // namespace baton
