// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/sequence_states.h"

#include <algorithm>

namespace baton {

std::shared_ptr<const Buffer> SequenceStates::at(std::int32_t position) const {
  const auto found = std::ranges::find(states_, position, &State::position);
  return found == states_.end() ? nullptr : found->memory;
}

std::int32_t SequenceStates::last_up_to(std::int32_t position) const {
  if (!kept()) return position;
  const auto behind = std::ranges::upper_bound(states_, position, {}, &State::position);
  return behind == states_.begin() ? 0 : std::prev(behind)->position;
}

std::vector<std::int32_t> SequenceStates::lasting(std::int32_t end) const {
  std::vector<std::int32_t> found;
  for (const State& state : states_)
    if (state.position == end || (state.position < end && std::ranges::binary_search(wanted_, state.position)))
      found.push_back(state.position);
  return found;
}

void SequenceStates::put(std::int32_t position, std::shared_ptr<const Buffer> state) {
  if (position == 0) return;
  const auto at = std::ranges::lower_bound(states_, position, {}, &State::position);
  // Nobody writes to a state that is shared.
  const State put{position, std::const_pointer_cast<Buffer>(std::move(state))};
  if (at != states_.end() && at->position == position) {
    *at = put;
  } else {
    states_.insert(at, put);
  }
}

std::byte* SequenceStates::make(std::int32_t position) {
  std::shared_ptr<Buffer> memory;
  if (spare_.empty()) {
    memory = std::make_shared<Buffer>(backend_->allocate_uninitialized(bytes_));
  } else {
    memory = std::move(spare_.back());
    spare_.pop_back();
  }
  put(position, memory);
  return memory->data();
}

void SequenceStates::want(std::int32_t position) {
  if (!kept() || position <= 0) return;
  const auto at = std::ranges::lower_bound(wanted_, position);
  if (at == wanted_.end() || *at != position) wanted_.insert(at, position);
}

std::vector<std::int32_t> SequenceStates::wanted(std::int32_t begin, std::int32_t end) const {
  return {std::ranges::upper_bound(wanted_, begin), std::ranges::lower_bound(wanted_, end)};
}

void SequenceStates::keep_between(std::int32_t begin, std::int32_t end) {
  constexpr std::size_t kSpare = 2;
  for (State& state : states_) {
    const bool early = state.position < begin && !std::ranges::binary_search(wanted_, state.position);
    if (!early && state.position <= end) continue;
    if (state.memory.use_count() == 1 && spare_.size() < kSpare) spare_.push_back(std::move(state.memory));
    state.memory.reset();
  }
  std::erase_if(states_, [](const State& state) { return state.memory == nullptr; });
}

}  // namespace baton
