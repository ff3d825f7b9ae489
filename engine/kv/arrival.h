// Arrival: memory that comes from the host's to the device's piece by piece, beside the operations, so that who needs
// the first piece need not wait for the last. The engine's thread only, but for the end of it.
#pragma once

#include <memory>
#include <vector>

#include "engine/backend/backend.h"

namespace baton {

class Arrival {
 public:
  /// Piece i is what lies in front of ends[i] and behind the piece before. Keeps both while anything is to come.
  Arrival(Backend& backend, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
          const std::vector<std::size_t>& ends);

  /// Begins to copy a piece, once. Throws BackendError.
  void bring(std::size_t piece);
  /// Operations given from now on find the piece there. Throws BackendError.
  void follow(std::size_t piece);
  void follow_all();
  /// All has been followed.
  bool complete() const { return from_ == nullptr; }

 private:
  enum class State { away, coming, there };
  struct Piece {
    std::size_t begin = 0, bytes = 0;
    State state = State::away;
    Copying copying = 0;
  };

  Backend& backend_;
  std::shared_ptr<const Buffer> from_, to_;
  std::vector<Piece> pieces_;
  std::size_t missing_ = 0;
};

}  // namespace baton
