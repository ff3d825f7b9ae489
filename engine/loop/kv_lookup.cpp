// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/kv_lookup.h"

#include <algorithm>

#include "engine/loop/sequence.h"

namespace baton {
namespace {

constexpr std::size_t kMaxEntries = 512;

}  // namespace

namespace {

/// Returns the last state up to `position` that was not evicted; position 0: there is none.
KeptState last_state(const std::vector<KeptState>& states, std::int32_t position, const SegmentStore& store) {
  KeptState found;
  for (const KeptState& state : states)
    if (state.position <= position && store.peek(state.segment)) found = state;
  return found;
}

/// Adds the state at the end of the match. Returns an empty match if there should be one but it is missing.
PrefixCache::Match with_state(PrefixCache::Match match, const KeptState& state, SegmentStore& store) {
  if (match.length == 0 || state.position == 0) return match;
  const std::shared_ptr<const Segment> kept = store.read(state.segment);
  if (!kept || match.length != state.position) return {};
  match.state = kept->state();
  return match;
}

}  // namespace

/// An entry's tokens follow those of its parent up to position `begin`, where the entry branches off.
struct PrefixCache::Entry {
  Entry* parent = nullptr;
  std::int32_t begin = 0;
  std::vector<TokenId> tokens;
  SegmentHandle handle;
  std::vector<KeptState> states;  // at positions in (begin, begin + tokens], ascending
  std::uint64_t last_use = 0;
  std::vector<std::unique_ptr<Entry>> children;

  std::int32_t common(std::span<const TokenId> prompt) const {
    const auto rest = prompt.subspan(static_cast<std::size_t>(begin));
    const auto n = static_cast<std::ptrdiff_t>(std::min(tokens.size(), rest.size()));
    return static_cast<std::int32_t>(std::mismatch(tokens.begin(), tokens.begin() + n, rest.begin()).first -
                                     tokens.begin());
  }
  std::size_t size() const {
    std::size_t count = 1;
    for (const auto& child : children) count += child->size();
    return count;
  }
};

/// The entries along a prompt, and how far the prompt matches them.
struct PrefixCache::Walk {
  std::vector<Entry*> entries;
  std::int32_t length = 0;

  /// Returns where the prompt leaves an entry.
  std::int32_t end_of(std::size_t entry) const {
    return entry + 1 < entries.size() ? entries[entry + 1]->begin : length;
  }
  /// Returns the states along the prompt, by ascending positions. Some may have been evicted.
  std::vector<KeptState> states() const {
    std::vector<KeptState> found;
    for (std::size_t i = 0; i < entries.size(); ++i)
      for (const KeptState& state : entries[i]->states)
        if (state.position <= end_of(i)) found.push_back(state);
    return found;
  }
};

PrefixCache::PrefixCache(SegmentStore& store, bool states)
    : store_(store), with_states_(states), root_(std::make_unique<Entry>()) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Walk PrefixCache::walk(std::span<const TokenId> prompt) const {
  Walk walk;
  for (Entry* at = root_.get(); at != nullptr;) {
    walk.length = at->begin + at->common(prompt);
    if (at != root_.get()) walk.entries.push_back(at);
    Entry* next = nullptr;
    for (const auto& child : at->children) {
      if (child->begin == walk.length && child->common(prompt) > 0) next = child.get();
    }
    at = next;
  }
  return walk;
}

PrefixCache::Match PrefixCache::find(std::span<const TokenId> prompt, std::int32_t max_tokens) {
  const Walk walk = living(this->walk(prompt));
  Match match;
  KeptState state;
  if (with_states_) {
    state = last_state(walk.states(), max_tokens, store_);
    max_tokens = state.position;
  }
  for (std::size_t i = 0; i < walk.entries.size() && walk.entries[i]->begin < max_tokens; ++i) {
    const Entry& entry = *walk.entries[i];
    const std::int32_t end = walk.end_of(i);
    std::shared_ptr<const Segment> segment = store_.read(entry.handle);
    if (!segment) break;  // no memory to upload the segment
    match.length = std::min(end, max_tokens);
    match.pieces.push_back({std::move(segment), entry.begin, match.length - entry.begin});
  }
  use(walk, match.pieces.size());
  return with_state(std::move(match), state, store_);
}

std::int32_t PrefixCache::length(std::span<const TokenId> prompt) {
  const Walk walk = living(this->walk(prompt));
  return with_states_ ? last_state(walk.states(), walk.length, store_).position : walk.length;
}

PrefixCache::Match PrefixCache::read(const KeptContext& context, std::int32_t length) {
  Match match;
  const KeptState state = last_state(context.states, length, store_);
  if (with_states_) length = state.position;
  for (const KeptContext::Piece& piece : context.pieces) {
    if (piece.begin >= length) break;
    std::shared_ptr<const Segment> segment = store_.read(piece.segment);
    if (!segment) break;
    match.length = std::min(piece.begin + piece.count, length);
    match.pieces.push_back({std::move(segment), piece.begin, match.length - piece.begin});
  }
  return with_state(std::move(match), state, store_);
}

std::vector<KeptState> PrefixCache::states(std::span<const TokenId> prompt) const { return walk(prompt).states(); }

std::vector<KeptContext::Piece> PrefixCache::pieces(std::span<const TokenId> prompt) const {
  const Walk walk = this->walk(prompt);
  std::vector<KeptContext::Piece> pieces;
  for (std::size_t i = 0; i < walk.entries.size(); ++i) {
    const std::int32_t begin = walk.entries[i]->begin;
    pieces.push_back({walk.entries[i]->handle, begin, walk.end_of(i) - begin});
  }
  return pieces;
}

/// Returns the beginning of the walk up to the first evicted segment, and drops the evicted entry with its branches.
PrefixCache::Walk PrefixCache::living(Walk walk) {
  for (std::size_t i = 0; i < walk.entries.size(); ++i) {
    if (store_.peek(walk.entries[i]->handle)) continue;
    walk.length = walk.entries[i]->begin;
    drop(*walk.entries[i]);
    walk.entries.resize(i);
  }
  return walk;
}

/// Counts a use of the first entries, the deepest first, so that the store evicts an entry before its parents.
void PrefixCache::use(const Walk& walk, std::size_t count) {
  ++clock_;
  for (std::size_t i = count; i-- > 0;) {
    walk.entries[i]->last_use = clock_;
    store_.use(walk.entries[i]->handle);
  }
}

void PrefixCache::add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens, std::int32_t least) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  Walk walk = living(this->walk(tokens));
  if (cache.states().kept()) least = 1;  // the state behind the last token is worth it
  if (walk.length + least > n) return add_states(backend, cache, walk);
  const auto rest = tokens.subspan(static_cast<std::size_t>(walk.length));
  SegmentHandle handle = store_.add(std::make_shared<Segment>(backend, cache, walk.length, n - walk.length,
                                                              std::vector<TokenId>(rest.begin(), rest.end())),
                                    0);
  if (!append(walk, rest, std::move(handle))) return;
  add_states(backend, cache, walk);
  if (entries_ > kMaxEntries) drop_oldest();
}

bool PrefixCache::insert(std::span<const TokenId> tokens, std::int32_t begin, std::shared_ptr<const Segment> segment) {
  Walk walk = living(this->walk(tokens));
  if (walk.length != begin) return false;
  if (!append(walk, tokens.subspan(static_cast<std::size_t>(begin)), store_.add(std::move(segment), 0))) return false;
  if (entries_ > kMaxEntries) drop_oldest();
  return true;
}

/// Adds an entry of these tokens behind the walk. False: the budget had no room for it, or for what is before it.
bool PrefixCache::append(Walk& walk, std::span<const TokenId> tokens, SegmentHandle handle) {
  use(walk, walk.entries.size());
  if (!handle || (!walk.entries.empty() && !store_.peek(walk.entries.back()->handle))) return false;
  auto entry = std::make_unique<Entry>();
  entry->parent = walk.entries.empty() ? root_.get() : walk.entries.back();
  entry->begin = walk.length;
  entry->tokens.assign(tokens.begin(), tokens.end());
  entry->handle = std::move(handle);
  entry->last_use = clock_;
  walk.entries.push_back(entry.get());
  walk.length += static_cast<std::int32_t>(tokens.size());
  entry->parent->children.push_back(std::move(entry));
  ++entries_;
  return true;
}

/// Keeps the states that the cache has along a walk and the entries do not have yet.
void PrefixCache::add_states(Backend& backend, const KvCache& cache, const Walk& walk) {
  for (const std::int32_t position : cache.states().lasting(walk.length)) {
    std::size_t at_entry = 0;
    while (at_entry < walk.entries.size() && position > walk.end_of(at_entry)) ++at_entry;
    if (at_entry == walk.entries.size()) continue;
    std::vector<KeptState>& states = walk.entries[at_entry]->states;
    std::erase_if(states, [&](const KeptState& state) { return !store_.peek(state.segment); });
    const auto at = std::ranges::lower_bound(states, position, {}, &KeptState::position);
    if (at != states.end() && at->position == position) continue;
    SegmentHandle handle = store_.add(std::make_shared<Segment>(backend, cache.states().at(position)), 0);
    if (handle) states.insert(at, {position, std::move(handle)});
  }
}

/// Drops an entry and all its branches.
void PrefixCache::drop(const Entry& entry) {
  entries_ -= entry.size();
  std::erase_if(entry.parent->children, [&](const auto& child) { return child.get() == &entry; });
}

/// Drops the least recently used entry without branches.
void PrefixCache::drop_oldest() {
  const Entry* oldest = nullptr;
  std::vector<const Entry*> left = {root_.get()};
  while (!left.empty()) {
    const Entry* at = left.back();
    left.pop_back();
    for (const auto& child : at->children) left.push_back(child.get());
    if (at->children.empty() && at != root_.get() && (oldest == nullptr || at->last_use < oldest->last_use))
      oldest = at;
  }
  if (oldest != nullptr) drop(*oldest);
}

void PrefixCache::clear() {
  root_->children.clear();
  entries_ = 0;
}

std::int32_t LivePrefix::common(std::span<const TokenId> prompt, std::int32_t max_tokens) const {
  const auto limit = static_cast<std::size_t>(std::max(0, std::min(coming, max_tokens)));
  const auto own = tokens.first(std::min(tokens.size(), limit));
  const auto other = prompt.first(std::min(prompt.size(), limit));
  return static_cast<std::int32_t>(std::mismatch(own.begin(), own.end(), other.begin(), other.end()).first -
                                   own.begin());
}

std::int32_t LivePrefix::usable(std::span<const TokenId> prompt, std::int32_t max_tokens) const {
  const std::int32_t length = common(prompt, std::min(max_tokens, ready));
  return cache == nullptr ? length : cache->states().last_up_to(length);
}

Lead lead_of(std::span<const LivePrefix> live, std::span<const TokenId> prompt, std::int32_t max_tokens,
             std::int32_t available) {
  Lead lead;
  for (const LivePrefix& one : live) {
    const std::int32_t common = one.common(prompt, max_tokens);
    available = std::max(available, one.usable(prompt, max_tokens));
    if (common > std::max(lead.length, one.ready)) lead = {one.id, common};
  }
  return lead.length >= available + kMinFollowedTokens ? lead : Lead{};
}

PrefixCache::Match find_prefix(Backend& backend, PrefixCache& stored, std::span<const LivePrefix> live,
                               std::span<const TokenId> prompt, std::int32_t max_tokens, std::int32_t known) {
  const LivePrefix* best = nullptr;
  std::int32_t length = 0;
  for (const LivePrefix& one : live) {
    const std::int32_t usable = one.usable(prompt, max_tokens);
    if (usable <= length) continue;
    best = &one;
    length = usable;
  }
  PrefixCache::Match match = stored.find(prompt, max_tokens);
  if (length <= std::max(match.length, known)) return match;
  try {
    const auto rest =
        prompt.subspan(static_cast<std::size_t>(match.length)).first(static_cast<std::size_t>(length - match.length));
    auto copy = std::make_shared<Segment>(backend, *best->cache, match.length, length - match.length,
                                          std::vector<TokenId>(rest.begin(), rest.end()));
    match.pieces.push_back({std::move(copy), match.length, length - match.length});
    match.length = length;
    match.state = best->cache->states().at(length);
  } catch (const BackendError&) {  // the prompt computes these tokens
  }
  return match;
}

std::int32_t known_beginning(const PromptKv& kv, std::span<const LivePrefix> live, std::span<const TokenId> prompt,
                             std::optional<std::int32_t> max_prefix) {
  std::int32_t length = std::max(kv.early, kv.context);
  if (!max_prefix) return length;
  length = std::max(length, std::min(kv.stored, *max_prefix));
  for (const LivePrefix& one : live) length = std::max(length, one.usable(prompt, *max_prefix));
  return length;
}

Lead lead_of(const PromptKv& kv, std::span<const LivePrefix> live, std::span<const TokenId> prompt,
             std::int32_t max_prefix) {
  return lead_of(live, prompt, max_prefix, std::max({kv.stored, kv.early, kv.context}));
}

bool takes_text(const GenerationRequest& request, const ReuseDecision& decision, const PromptPart& part, int hops) {
  const ReuseOptions& reuse = request.reuse;
  if (request.run == 0 || !takes_running_texts(reuse, decision)) return false;
  if (part.slot.empty() || part.segment || part.imported_kv) return false;
  if (reuse.max_hops > 0 && hops >= reuse.max_hops) return false;
  return static_cast<std::int32_t>(part.tokens.size()) >= std::max(reuse.min_tokens, kMinFollowedTokens);
}

TextStep text_step(const GenerationRequest& request, const ReuseDecision& decision, const PromptPart& part,
                   const TextInPrompt& found, std::int32_t begin, std::int32_t known) {
  if (found.tentative || !takes_text(request, decision, part, found.hops) || begin < known) return TextStep::compute;
  return found.complete ? TextStep::take : TextStep::wait;
}

namespace {

/// Returns the pieces of positions [0, end), up to the first that was evicted.
std::vector<KeptContext::Piece> share(const std::vector<KeptContext::Piece>& pieces, std::int32_t end,
                                      SegmentStore& store) {
  std::vector<KeptContext::Piece> shared;
  for (const KeptContext::Piece& piece : pieces) {
    if (piece.begin >= end || !store.peek(piece.segment)) break;
    shared.push_back({store.hold(piece.segment), piece.begin, std::min(piece.count, end - piece.begin)});
  }
  return shared;
}

std::int32_t end_of(const std::vector<KeptContext::Piece>& pieces) {
  return pieces.empty() ? 0 : pieces.back().begin + pieces.back().count;
}

/// Keeps the states that the sequence's cache has; those that are stored already are shared. Returns false when the
/// budget has no room for the last one.
bool keep_states(KeptContext& kept, const Sequence& sequence, Backend& backend, SegmentStore& store,
                 const PrefixCache& prefixes) {
  const auto n = static_cast<std::int32_t>(kept.tokens.size());
  std::vector<KeptState> stored;
  if (!kept.imported_kv) stored = prefixes.states(kept.tokens);
  if (sequence.prompt.assembly().continued() > 0)
    stored.insert(stored.end(), sequence.request().context->states.begin(), sequence.request().context->states.end());
  for (const std::int32_t position : sequence.cache().states().lasting(n)) {
    const auto found = std::ranges::find_if(
        stored, [&](const KeptState& state) { return state.position == position && store.peek(state.segment); });
    const SegmentHandle handle =
        found != stored.end()
            ? found->segment
            : store.add(std::make_shared<Segment>(backend, sequence.cache().states().at(position)), 0);
    if (handle) kept.states.push_back({position, store.hold(handle)});
  }
  return !kept.states.empty() && kept.states.back().position == n;
}

}  // namespace

std::int32_t common_length(const KeptContext& context, std::span<const TokenId> prompt, const SegmentStore& store) {
  if (context.engine != &store) return 0;
  return static_cast<std::int32_t>(
      std::mismatch(context.tokens.begin(), context.tokens.end(), prompt.begin(), prompt.end()).second -
      prompt.begin());
}

std::int32_t context_length(const GenerationRequest& request, const ReuseDecision& decision,
                            std::span<const TokenId> prompt, const SegmentStore& store) {
  if (!request.context || !reuses_prefixes(*request.reuse.method)) return 0;
  std::int32_t length = std::min(common_length(*request.context, prompt, store), max_prefix(request));
  if (!request.context->states.empty()) length = last_state(request.context->states, length, store).position;
  return std::max(0, takes_segments(request.reuse, decision) ? length : std::min(length, request.context->exact));
}

ContextHandle keep_context(const Sequence& sequence, Backend& backend, SegmentStore& store,
                           const PrefixCache& prefixes) {
  const PromptAssembly& assembly = sequence.prompt.assembly();
  const std::int32_t n = sequence.cache().length();
  auto kept = std::make_shared<KeptContext>();
  kept->engine = &store;
  kept->tokens.assign(sequence.state.tokens.begin(), sequence.state.tokens.begin() + n);
  kept->hops = assembly.hops;
  kept->imported_kv = has_imported_kv(sequence.request());
  kept->exact = assembly.hops == 0 ? n : std::min(n, assembly.exact_length);
  if (assembly.continued() > 0) kept->pieces = share(sequence.request().context->pieces, assembly.continued(), store);
  std::vector<KeptContext::Piece> cached;
  if (!kept->imported_kv)
    cached = prefixes.pieces(std::span(kept->tokens).first(static_cast<std::size_t>(kept->exact)));
  if (end_of(cached) > end_of(kept->pieces)) kept->pieces = share(cached, kept->exact, store);
  if (const std::int32_t at = end_of(kept->pieces); at < n) {
    const auto rest = std::span(kept->tokens).subspan(static_cast<std::size_t>(at));
    const SegmentHandle handle = store.add(std::make_shared<Segment>(backend, sequence.cache(), at, n - at,
                                                                     std::vector<TokenId>(rest.begin(), rest.end())),
                                           0);
    if (!handle) return nullptr;
    kept->pieces.push_back({store.hold(handle), at, n - at});
  }
  if (sequence.cache().states().kept() && !keep_states(*kept, sequence, backend, store, prefixes)) return nullptr;
  return kept;
}

std::vector<std::byte> bytes_of(Device& device, const KeptContext& context, const SegmentStore& store) {
  std::vector<std::shared_ptr<const Segment>> segments;
  std::int32_t n = 0;
  for (const KeptContext::Piece& piece : context.pieces) {
    std::shared_ptr<const Segment> segment = context.engine == &store ? store.peek(piece.segment) : nullptr;
    if (!segment) break;
    segments.push_back(std::move(segment));
    n += piece.count;
  }
  std::vector<std::byte> state;
  if (!context.states.empty()) {
    const KeptState last = last_state(context.states, n, store);
    n = last.position;
    if (n > 0) state = state_on_host(device, *store.peek(last.segment));
  }
  if (segments.empty() || n == 0) return {};
  const KvLayout& layout = segments.front()->layout();
  std::vector<std::byte> bytes(static_cast<std::size_t>(n) * layout.token_bytes());
  std::span<std::byte> rest = bytes;
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    const std::size_t row = layout.row_bytes(layer), matrix = static_cast<std::size_t>(n) * row;
    for (std::size_t i = 0; i < segments.size() && context.pieces[i].begin < n && row > 0; ++i) {
      const KeptContext::Piece& piece = context.pieces[i];
      const std::size_t begin = static_cast<std::size_t>(piece.begin) * row;
      const std::size_t count = static_cast<std::size_t>(std::min(piece.count, n - piece.begin)) * row;
      segments[i]->copy_first_rows(layer, rest.subspan(begin, count), rest.subspan(matrix + begin, count));
    }
    rest = rest.subspan(2 * matrix);
  }
  bytes.insert(bytes.end(), state.begin(), state.end());
  return bytes;
}

ContextHandle with_bytes(const std::shared_ptr<KeptContext>& context, const KvLayout& layout,
                         std::span<const std::byte> bytes, Backend& backend, SegmentStore& store) {
  const auto kv = bytes.first(bytes.size() - std::min(bytes.size(), layout.state_bytes));
  const auto segment = std::make_shared<Segment>(backend, layout, context->tokens, kv);
  const std::int32_t n = segment->length();
  const SegmentHandle handle = store.add(segment, 0);
  if (!handle) return nullptr;
  if (layout.state_bytes > 0) {
    auto memory = std::make_shared<Buffer>(backend.allocate_uninitialized(layout.state_bytes));
    backend.copy_to_device(memory->data(), bytes.last(layout.state_bytes));
    const SegmentHandle state = store.add(std::make_shared<Segment>(backend, std::move(memory)), 0);
    if (!state) return nullptr;
    context->states = {{n, store.hold(state)}};
  }
  context->engine = &store;
  context->imported_kv = true;
  context->pieces = {{store.hold(handle), 0, n}};
  return context;
}

}  // namespace baton
