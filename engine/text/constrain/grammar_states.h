// SPDX-License-Identifier: Apache-2.0
// GrammarStates: the deterministic states of a grammar, made when they are first reached. A state is a set of places in
// the grammar, each with the stack of the rules that are open around it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/text/constrain/grammar.h"

namespace baton {

/// A rule that is open. Stacks share what is below.
struct GrammarFrame {
  std::int32_t then;  // the node behind the call
  std::int32_t depth;
  std::uint64_t hash;  // hash of this frame and all below
  std::shared_ptr<const GrammarFrame> below;
};

/// A place before a byte.
struct GrammarPlace {
  std::int32_t node;
  std::shared_ptr<const GrammarFrame> stack;  // null: in the first rule
};

/// The places that the text so far leads to. Immutable; it outlives the GrammarStates that made it.
struct GrammarPlaces {
  std::vector<GrammarPlace> places;  // sorted by node and stack
  bool ends = false;                 // the text so far is a whole text
  std::uint64_t hash = 0;
};

/// Bounded in number and memory; one thread at a time.
class GrammarStates {
 public:
  struct State;
  /// Bytes of ASCII that may follow one another freely.
  struct FreeRun {
    std::array<std::uint64_t, 2> ascii{};  // the bytes
    std::uint32_t length = 0;              // how many of them, at most kMaxRun; that many: perhaps more
  };
  static constexpr std::uint32_t kMaxRun = 64;

  struct State {
    std::shared_ptr<const GrammarPlaces> places;
    std::vector<State*> next;                // by byte class; null: unknown
    std::uint32_t id = 0;                    // in the order in which they were made
    State* most = nullptr;                   // where most bytes of ASCII lead; null: unknown
    std::array<std::uint64_t, 2> to_most{};  // these bytes
    std::unique_ptr<const FreeRun> run;      // null: unknown

    bool dead() const { return places->places.empty() && !places->ends; }
    /// True when the text is whole and nothing can follow.
    bool complete() const { return places->places.empty() && places->ends; }
  };

  explicit GrammarStates(std::shared_ptr<const Grammar> grammar);

  const Grammar& grammar() const { return *grammar_; }
  /// The state before the first byte.
  State* start();
  /// The state of these places. Throws std::runtime_error when there are too many states, or they take too much memory.
  State* find(std::shared_ptr<const GrammarPlaces> places);
  /// The state behind a byte; it is dead when no text continues so. Throws as find does, and when a state has too many
  /// places.
  State* next(State* state, std::uint8_t byte) {
    State* known = state->next[grammar_->byte_class(byte)];
    return known != nullptr ? known : make_next(state, byte);
  }

  /// Any text of up to `length` of these bytes may follow.
  const FreeRun& free_run(State* state);

  std::size_t size() const { return states_.size(); }
  std::size_t work() const { return work_; }  // places visited since the last clear(), about 0.1 us each
  /// True when clear() should be called before the next step: states or work are near their limits.
  bool crowded() const;
  /// Forgets all states. Places stay valid.
  void clear();

 private:
  class Closure;
  State* make_next(State* state, std::uint8_t byte);
  void find_most(State* state);

  std::shared_ptr<const Grammar> grammar_;
  std::deque<State> states_;
  std::size_t work_ = 0;   // places visited since the last clear()
  std::size_t bytes_ = 0;  // size of the states, about
  std::unordered_multimap<std::uint64_t, State*> by_hash_;
};

}  // namespace baton
