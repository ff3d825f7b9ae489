// SPDX-License-Identifier: Apache-2.0
// RequestEnd: the end of a request. It stores what the request leaves for others, makes the probe of a measured turn,
// and tells the caller. The caller is told in any case; what the request leaves may get lost.
#pragma once

#include "engine/base/errors.h"
#include "engine/loop/kv_keeper.h"

namespace baton {

constexpr const char* kCallbackThrew = "a callback threw something other than an exception";

/// Used by the engine's thread only.
class RequestEnd {
 public:
  explicit RequestEnd(EngineParts& parts) : parts_(parts), keeper_(parts) {}

  /// Ends a running sequence; one that runs no longer is ignored.
  void end(const Sequence* sequence, FinishReason reason, const char* error) noexcept;
  void end(SequenceList& list, SequenceList::iterator at, FinishReason reason, const char* error) noexcept;
  void end(std::unique_ptr<Sequence> sequence, FinishReason reason, const char* error) noexcept;
  /// Ends the probe that runs. Returns false when there is none.
  bool drop_probe() noexcept;
  /// Takes the current size of all KV into the statistics.
  void count_kv() noexcept;

 private:
  void make_probe_of(Sequence& ended);

  EngineParts& parts_;
  KvKeeper keeper_;
};

}  // namespace baton
