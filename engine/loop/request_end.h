// SPDX-License-Identifier: Apache-2.0
// The end of a request. KvKeeper keeps a sequence's KV for other prompts: segments of its answer and of the texts in
// its prompt, prefixes, contexts, and what its method learns. RequestEnd ends requests and tells their callers.
#pragma once

#include "engine/base/errors.h"
#include "engine/loop/engine_parts.h"

namespace baton {

/// A part of a running prompt that becomes a segment.
struct RunningText {
  Sequence* author = nullptr;  // null: there is none
  std::size_t part = 0;
  int hops = 0;  // hops of the text's KV
};

/// Returns the first running prompt of `run` in which `tokens` are a text that becomes a segment.
RunningText find_running_text(const SequenceList& running, std::uint64_t run, const TokenText& tokens);

/// Used by the engine's thread only. If memory is short, KV is not kept for reuse; the answer is never lost.
class KvKeeper {
 public:
  explicit KvKeeper(EngineParts& parts) : parts_(parts) {}

  /// Keeps all KV of a complete answer that other prompts may reuse.
  void store_all(Sequence& sequence);
  /// Keeps the KV of a text while its author is still running; the author's prompt must be complete. Returns null if
  /// memory is short.
  SegmentHandle store_text(const RunningText& text);
  /// Gives the texts of a sequence that has ended to the waiting requests of its run.
  void give_texts(Sequence& ended);
  /// Keeps the KV of a request that was cut off if others wait for it; one of them continues from there.
  void keep_for_followers(const Sequence& sequence);

 private:
  struct Kept;
  SegmentHandle keep(const KvCache& cache, Kept kept);
  void leave_in_store(const Sequence& sequence, std::int32_t exact);

  EngineParts& parts_;
};

/// Gives a part of a waiting prompt the KV that another sequence has computed.
void give_segment(GenerationRequest& waiting, std::size_t part, SegmentHandle segment);

// RequestEnd keeps the request's KV for others, makes the probe of a measured turn, and tells the caller. If memory is
// short, the KV may be lost, but the caller is always told.

constexpr const char* kCallbackThrew = "a callback threw something other than an exception";

/// Used by the engine's thread only.
class RequestEnd {
 public:
  explicit RequestEnd(EngineParts& parts) : parts_(parts), keeper_(parts) {}

  /// Ends a running sequence. Ignores one that has already ended.
  void end(const Sequence* sequence, FinishReason reason, const char* error) noexcept;
  void end(SequenceList& list, SequenceList::iterator at, FinishReason reason, const char* error) noexcept;
  void end(std::unique_ptr<Sequence> sequence, FinishReason reason, const char* error) noexcept;
  /// Ends the running probe. Returns false if there is none.
  bool drop_probe() noexcept;
  /// Records the current size of all KV in the statistics.
  void count_kv() noexcept;
  /// Makes the probe of a measured turn, which must have written a token. Makes none if memory is short.
  void make_probe_of(Sequence& turn) noexcept;
  /// Drops the probes whose turn has ended without an answer to compare.
  void drop_lost_probes() noexcept;

 private:
  EngineParts& parts_;
  KvKeeper keeper_;
};

}  // namespace baton
