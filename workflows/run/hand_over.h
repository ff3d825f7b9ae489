// SPDX-License-Identifier: Apache-2.0
// The segments of one run: who made them, who will still read them. A segment goes when its last reader is over.
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

  /// Gives each placeholder of the turn's prompt its segment, where there is one, or with method droidspeak that of
  /// another model, and says which are to become segments.
  void attach(std::size_t turn, const InferenceEngine* engine, std::vector<PromptPart>& prompt) const;

  /// How many later turns will read the turn's output.
  std::int64_t output_readers(std::size_t turn) const {
    return static_cast<std::int64_t>(readers_of_output(turn).size());
  }

  /// And whether some of those are turns of other models, who may read it.
  bool output_elsewhere(std::size_t turn) const { return read_elsewhere(turn, readers_of_output(turn)); }

  /// Takes what the engine made of a prompt (whose tokens were `prompt`) and of its answer.
  void take(std::size_t turn, const InferenceEngine* engine, const std::vector<PromptPart>& prompt,
            const GenerationResult& result);

  /// The turn reads nothing any more.
  void turn_over(std::size_t turn);

  std::size_t size() const { return entries_.size(); }

 private:
  using Key = std::pair<const InferenceEngine*, std::vector<TokenId>>;
  struct Entry {
    SegmentHandle handle;
    std::set<std::size_t> readers;  // turns
  };

  bool read_elsewhere(std::size_t turn, const std::set<std::size_t>& readers) const;
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
