// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/piecewise_upload.h"

#include <algorithm>
#include <exception>

namespace baton {

PiecewiseUpload::PiecewiseUpload(Device& device, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                                 std::vector<Piece> pieces, Source source)
    : device_(device),
      from_(std::move(from)),
      to_(std::move(to)),
      pieces_(std::move(pieces)),
      state_(pieces_.size(), State::waiting),
      transfers_(pieces_.size()),
      unfollowed_(pieces_.size()),
      source_(source) {}

PiecewiseUpload::~PiecewiseUpload() {
  if (source_ == Source::own) return;
  const TransferId last = *std::max_element(transfers_.begin(), transfers_.end());
  try {
    device_.wait_for(last);
  } catch (const std::exception&) {  // NOLINT: the device copies no more
  }
}

void PiecewiseUpload::upload(std::size_t piece) {
  if (state_.at(piece) != State::waiting) return;
  for (const Range& range : pieces_[piece]) transfers_[piece] = device_.upload(*to_, *from_, range.begin, range.bytes);
  state_[piece] = State::queued;
}

void PiecewiseUpload::follow(std::size_t piece) {
  if (state_.at(piece) == State::followed) return;
  upload(piece);
  device_.follow(transfers_[piece]);
  state_[piece] = State::followed;
  if (--unfollowed_ == 0 && source_ == Source::own) from_ = to_ = nullptr;
}

void PiecewiseUpload::follow_all() {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) follow(piece);
}

}  // namespace baton
