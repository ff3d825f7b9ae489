// SPDX-License-Identifier: Apache-2.0
// SequenceStates: what the recurrent layers of a model keep of a sequence's first tokens. Unlike keys and values, a
// state cannot be cut: it stands for all tokens before a position, so a cache can only go back to a position whose
// state was kept. States are kept behind the last two steps, and where the plan says that prompts branch
// (docs/decisions/memory.md).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"

namespace baton {

/// The states of one sequence. A state does not change once its step has succeeded, so caches, prefixes and contexts
/// share it. Threads: the engine's.
class SequenceStates {
 public:
  /// `bytes`: of one state, all layers together; 0: the model has no recurrent layers. The backend must outlive the
  /// object and all states.
  SequenceStates(Backend& backend, std::size_t bytes) : backend_(&backend), bytes_(bytes) {}

  /// False for a model without recurrent layers; then every position can be returned to.
  bool kept() const { return bytes_ > 0; }

  /// Returns the state behind the first `position` tokens. Null behind 0 tokens, where all layers begin with zeros, and
  /// where none was kept (can_return tells these apart).
  std::shared_ptr<const Buffer> at(std::int32_t position) const;
  /// Returns the last position up to `position` whose state is kept; 0 always is.
  std::int32_t last_up_to(std::int32_t position) const;
  bool can_return(std::int32_t position) const { return last_up_to(position) == position; }
  /// Returns the positions up to `end` whose states are kept and worth it beyond the next steps, ascending: those that
  /// are wanted, and `end` itself.
  std::vector<std::int32_t> lasting(std::int32_t end) const;

  /// Keeps a state that another sequence computed.
  void put(std::int32_t position, std::shared_ptr<const Buffer> state);
  /// Returns memory for the state that a step computes behind `position`. Throws BackendError.
  std::byte* make(std::int32_t position);

  /// Asks steps to keep the state behind `position` for as long as the sequence lives.
  void want(std::int32_t position);
  /// Returns the wanted positions in (begin, end), ascending.
  std::vector<std::int32_t> wanted(std::int32_t begin, std::int32_t end) const;

  /// Drops the states before `begin` that are not wanted, and those behind `end`. Their memory is used again.
  void keep_between(std::int32_t begin, std::int32_t end);

  /// Bytes of all states, those included that are shared with others.
  std::size_t bytes() const { return bytes_ * (states_.size() + spare_.size()); }

 private:
  struct State {
    std::int32_t position = 0;
    std::shared_ptr<Buffer> memory;
  };

  Backend* backend_;
  std::size_t bytes_;
  std::vector<State> states_;         // ascending positions
  std::vector<std::int32_t> wanted_;  // ascending
  std::vector<std::shared_ptr<Buffer>> spare_;
};

}  // namespace baton
