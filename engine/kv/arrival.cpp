// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/arrival.h"

namespace baton {

Arrival::Arrival(Backend& backend, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                 std::vector<Piece> pieces)
    : backend_(backend),
      from_(std::move(from)),
      to_(std::move(to)),
      pieces_(std::move(pieces)),
      state_(pieces_.size(), State::away),
      copying_(pieces_.size()),
      missing_(pieces_.size()) {}

void Arrival::bring(std::size_t piece) {
  if (state_.at(piece) != State::away) return;
  for (const Range& range : pieces_[piece]) copying_[piece] = backend_.copy_up(*to_, *from_, range.begin, range.bytes);
  state_[piece] = State::coming;
}

void Arrival::follow(std::size_t piece) {
  if (state_.at(piece) == State::there) return;
  bring(piece);
  backend_.follow(copying_[piece]);
  state_[piece] = State::there;
  if (--missing_ == 0) from_ = to_ = nullptr;
}

void Arrival::follow_all() {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) follow(piece);
}

}  // namespace baton
