// SPDX-License-Identifier: Apache-2.0
// The look-up of KV that a prompt can reuse for its beginning or its texts: cached prefixes (PrefixCache), exact KV at
// the beginnings of running prompts (live prefixes), early prompts, contexts and segments. The decisions are pure
// functions of a snapshot. A prompt that begins with the same tokens as a running one follows it: it waits until
// the common beginning is computed, and copies the KV (docs/decisions/scheduling.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/segment_handle.h"
#include "engine/kv/segment_store.h"
#include "engine/reuse/decision.h"
#include "engine/text/tokenizer.h"

namespace baton {

class Sequence;

/// The exact KV of prompt prefixes, for prompts that begin with the same tokens. The cache is a tree, so a common
/// prefix is cached once: an entry holds only the tokens after the point where it branches off its parent. The
/// segments count towards the budget of the segment store, which may evict them. Used by the engine's thread only.
class PrefixCache {
 public:
  /// `states`: the model has recurrent layers, so a prefix can only end at a position whose state was kept.
  explicit PrefixCache(SegmentStore& store, bool states = false);
  ~PrefixCache();

  /// Tokens [0, count) of the segment are at positions [begin, begin + count) of the prompt.
  struct Piece {
    std::shared_ptr<const Segment> segment;
    std::int32_t begin = 0;
    std::int32_t count = 0;
  };
  struct Match {
    std::vector<Piece> pieces;            // contiguous, from position 0
    std::int32_t length = 0;              // tokens of all pieces
    std::shared_ptr<const Buffer> state;  // state of recurrent layers after the pieces; null: none

    /// Copies the state into a cache that already holds the pieces.
    void put_state(KvCache& cache) const {
      if (state) cache.states().put(length, state);
    }
  };
  /// Returns the longest cached prefix of the prompt, at most `max_tokens` tokens.
  Match find(std::span<const TokenId> prompt, std::int32_t max_tokens);

  /// Returns the number of tokens of the longest cached prefix. Does not count as a use.
  std::int32_t length(std::span<const TokenId> prompt);

  /// Returns the first `length` tokens of a context, up to the first piece that was evicted or does not fit into device
  /// memory.
  Match read(const KeptContext& context, std::int32_t length);

  /// Returns where the KV of the longest cached prefix is. Does not count as a use; some of the KV may have been
  /// evicted.
  std::vector<KeptContext::Piece> pieces(std::span<const TokenId> prompt) const;
  /// Returns the states kept for the longest cached prefix, in ascending order of position. Some may have been evicted.
  std::vector<KeptState> states(std::span<const TokenId> prompt) const;

  /// The minimum number of tokens for which an entry is worth its memory.
  static constexpr std::int32_t kWorthKeeping = 16;

  /// Adds positions [0, n) of `cache` as the prefix `tokens` of n tokens, if at least `least` of them are not cached
  /// yet. Also keeps the states that `cache` has of them.
  void add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens, std::int32_t least = kWorthKeeping);

  /// Adds the last tokens of the prefix `tokens`, from `begin` on; the segment has their exact KV. `begin` must be
  /// length(tokens). Returns false if the budget has no room.
  bool insert(std::span<const TokenId> tokens, std::int32_t begin, std::shared_ptr<const Segment> segment);

  void clear();

  const SegmentStore& store() const { return store_; }

 private:
  struct Entry;
  struct Walk;
  Walk walk(std::span<const TokenId> prompt) const;
  Walk living(Walk walk);
  bool append(Walk& walk, std::span<const TokenId> tokens, SegmentHandle handle);
  void add_states(Backend& backend, const KvCache& cache, const Walk& walk);
  void use(const Walk& walk, std::size_t count);
  void drop(const Entry& entry);
  void drop_oldest();

  SegmentStore& store_;
  const bool with_states_;
  std::unique_ptr<Entry> root_;  // holds no tokens
  std::size_t entries_ = 0;
  std::uint64_t clock_ = 0;
};

/// The minimum number of tokens for which a prompt waits for another one.
constexpr std::int32_t kMinFollowedTokens = 16;

/// Exact KV at the beginning of a running or early prompt. It points into the sequence, so it must not be kept beyond
/// the current engine step.
struct LivePrefix {
  std::uint64_t id = 0;             // RequestId or EarlyId; one counter gives both
  const KvCache* cache = nullptr;   // keeps raw keys
  std::span<const TokenId> tokens;  // from position 0, at least `coming` of them
  std::int32_t ready = 0;           // positions [0, ready) of the cache hold exact KV
  std::int32_t coming = 0;          // positions [0, coming) will hold exact KV when the prefill is over

  /// Returns the number of first tokens that a prompt has in common with [0, coming), at most `max_tokens`.
  std::int32_t common(std::span<const TokenId> prompt, std::int32_t max_tokens) const;
  /// Returns how many of them the prompt can copy now: those that are ready, up to the last state that was kept.
  std::int32_t usable(std::span<const TokenId> prompt, std::int32_t max_tokens) const;
};

/// The sequence that a prompt waits for, and the length that its exact KV must have. id 0: none.
struct Lead {
  std::uint64_t id = 0;
  std::int32_t length = 0;
};

/// Returns the live prefix with the longest beginning in common with the prompt, at most `max_tokens` tokens, if
/// waiting for it saves at least kMinFollowedTokens. `available`: first tokens whose KV the prompt can get without
/// waiting.
Lead lead_of(std::span<const LivePrefix> live, std::span<const TokenId> prompt, std::int32_t max_tokens,
             std::int32_t available);

/// Returns the longest prefix of the prompt that is cached or live, at most `max_tokens` tokens. The last piece may be
/// a copy of a live cache, which is not added to the prefix cache. It is left out if the prefix has at most `known`
/// tokens, whose KV the caller already has, or if there is no memory for the copy.
PrefixCache::Match find_prefix(Backend& backend, PrefixCache& stored, std::span<const LivePrefix> live,
                               std::span<const TokenId> prompt, std::int32_t max_tokens, std::int32_t known = 0);

/// How many first tokens of a prompt have KV outside of running prompts.
struct PromptKv {
  std::int32_t stored = 0;   // tokens of the longest cached prefix
  std::int32_t early = 0;    // tokens computed by the request's early prompt
  std::int32_t context = 0;  // tokens of the request's context that the method may use
};

/// Returns the number of first tokens whose KV the prompt would begin with now. `max_prefix`: maximum tokens of a
/// prefix; nullopt: the method reuses no prefixes.
std::int32_t known_beginning(const PromptKv& kv, std::span<const LivePrefix> live, std::span<const TokenId> prompt,
                             std::optional<std::int32_t> max_prefix);

/// Returns the running prompt for which this one waits; id 0: none.
Lead lead_of(const PromptKv& kv, std::span<const LivePrefix> live, std::span<const TokenId> prompt,
             std::int32_t max_prefix);

/// True if a request may take this part's KV from a running prompt that computes the same text. `hops`: hops of that
/// prompt's KV of the text.
bool takes_text(const GenerationRequest& request, const ReuseDecision& decision, const PromptPart& part, int hops);

/// What a request does about a text that a running prompt also computes.
enum class TextStep : std::uint8_t {
  compute,  // compute it: nothing can be taken, or the request has its KV already
  wait,     // wait until the other prompt is complete
  take,     // take the other prompt's KV
};
/// The same text in a running prompt, which makes a segment of it.
struct TextInPrompt {
  bool tentative = false;  // the prompt's KV may still be replaced by exact KV
  bool complete = false;   // all rows of the prompt have run
  int hops = 0;            // hops of the text's KV
};
/// `begin`: position of the part in the request's prompt; `known`: known_beginning() of that prompt.
TextStep text_step(const GenerationRequest& request, const ReuseDecision& decision, const PromptPart& part,
                   const TextInPrompt& found, std::int32_t begin, std::int32_t known);

// Functions that reuse a kept context (engine/kv/segment_handle.h) and make one. For the engine's thread only.

/// Returns the number of first tokens of the prompt that the context holds; 0 if it belongs to another engine.
std::int32_t common_length(const KeptContext& context, std::span<const TokenId> prompt, const SegmentStore& store);

/// Returns the number of first tokens of the prompt whose KV the request may take from its context. Does not check
/// whether the KV was evicted.
std::int32_t context_length(const GenerationRequest& request, const ReuseDecision& decision,
                            std::span<const TokenId> prompt, const SegmentStore& store);

/// Keeps the KV of a complete sequence, whose prefix has been added to `prefixes`. KV that is kept already is shared.
/// Returns null if the budget has no room. Throws BackendError.
ContextHandle keep_context(const Sequence& sequence, Backend& backend, SegmentStore& store,
                           const PrefixCache& prefixes);

/// Returns the serialized context; see LocalEngine::context_bytes.
std::vector<std::byte> bytes_of(Device& device, const KeptContext& context, const SegmentStore& store);
/// Returns `context` with such bytes as its only piece, or null if the budget has no room.
ContextHandle with_bytes(const std::shared_ptr<KeptContext>& context, const KvLayout& layout,
                         std::span<const std::byte> bytes, Backend& backend, SegmentStore& store);

}  // namespace baton
