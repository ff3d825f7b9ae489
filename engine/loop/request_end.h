// SPDX-License-Identifier: Apache-2.0
// How a request ends. KvKeeper: what a sequence leaves for other prompts: segments of its answer and of the texts in
// its prompt, prefixes, contexts, and what its method learns. RequestEnd: ends requests and tells their callers.
#pragma once

#include "engine/base/errors.h"
#include "engine/loop/engine_parts.h"

namespace baton {

/// A part of a running prompt that becomes a segment.
struct RunningText {
  Sequence* author = nullptr;  // null: there is none
  std::size_t part = 0;
  int hops = 0;  // of the text's KV
};

/// Returns the first running prompt of `run` in which `tokens` are a text that becomes a segment.
RunningText find_running_text(const SequenceList& running, std::uint64_t run, const TokenText& tokens);

/// Used by the engine's thread only. A shortage of memory loses the reuse, never an answer.
class KvKeeper {
 public:
  explicit KvKeeper(EngineParts& parts) : parts_(parts) {}

  /// Stores what a complete answer leaves.
  void store_all(Sequence& sequence);
  /// Stores the KV of a text while its author, whose prompt must be complete, is still running. Returns null when
  /// memory is short.
  SegmentHandle store_text(const RunningText& text);
  /// Gives the texts of a sequence that has ended to the requests of its run that wait.
  void give_texts(Sequence& ended);
  /// Stores what a request that was cut off has computed, if others wait for it; one of them continues from there.
  void keep_for_followers(const Sequence& sequence);

 private:
  struct Kept;
  SegmentHandle keep(const KvCache& cache, Kept kept);
  void leave_in_store(const Sequence& sequence, std::int32_t exact);

  EngineParts& parts_;
};

/// Gives a part of a waiting prompt the KV that another sequence has computed.
void give_segment(GenerationRequest& waiting, std::size_t part, SegmentHandle segment);

// RequestEnd: the end of a request. It stores what the request leaves for others, makes the probe of a measured turn,
// and tells the caller. The caller is told in any case; what the request leaves may get lost.

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
  /// Makes the probe of a measured turn, which has written a token. If there is no memory for it, none is
  /// made.
  void make_probe_of(Sequence& turn) noexcept;
  /// Ends the probes whose turn has ended without an answer to compare.
  void drop_lost_probes() noexcept;

 private:
  EngineParts& parts_;
  KvKeeper keeper_;
};

}  // namespace baton
