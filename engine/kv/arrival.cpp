#include "engine/kv/arrival.h"

namespace baton {

Arrival::Arrival(Backend& backend, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                 const std::vector<std::size_t>& ends)
    : backend_(backend), from_(std::move(from)), to_(std::move(to)), missing_(ends.size()) {
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    pieces_.push_back({begin, end - begin});
    begin = end;
  }
}

void Arrival::bring(std::size_t piece) {
  Piece& one = pieces_.at(piece);
  if (one.state != State::away) return;
  one.copying = backend_.copy_up(*to_, *from_, one.begin, one.bytes);
  one.state = State::coming;
}

void Arrival::follow(std::size_t piece) {
  Piece& one = pieces_.at(piece);
  if (one.state == State::there) return;
  bring(piece);
  backend_.follow(one.copying);
  one.state = State::there;
  if (--missing_ == 0) from_ = to_ = nullptr;
}

void Arrival::follow_all() {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) follow(piece);
}

}  // namespace baton
