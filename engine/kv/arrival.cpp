// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/arrival.h"

namespace baton {

Arrival::Arrival(Device& device, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                 std::vector<Piece> pieces)
    : device_(device),
      from_(std::move(from)),
      to_(std::move(to)),
      pieces_(std::move(pieces)),
      state_(pieces_.size(), State::away),
      transfers_(pieces_.size()),
      missing_(pieces_.size()) {}

void Arrival::bring(std::size_t piece) {
  if (state_.at(piece) != State::away) return;
  for (const Range& range : pieces_[piece]) transfers_[piece] = device_.upload(*to_, *from_, range.begin, range.bytes);
  state_[piece] = State::coming;
}

void Arrival::follow(std::size_t piece) {
  if (state_.at(piece) == State::there) return;
  bring(piece);
  device_.follow(transfers_[piece]);
  state_[piece] = State::there;
  if (--missing_ == 0) from_ = to_ = nullptr;
}

void Arrival::follow_all() {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) follow(piece);
}

}  // namespace baton
