// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/contexts.h"

#include <algorithm>

namespace baton {
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
  const std::int32_t length = std::min(common_length(*request.context, prompt, store), max_prefix(request));
  return std::max(0, takes_segments(request.reuse, decision) ? length : std::min(length, request.context->exact));
}

ContextHandle keep_context(const Sequence& sequence, Backend& backend, SegmentStore& store,
                           const PrefixCache& prefixes) {
  const PromptAssembly& assembly = sequence.prompt.assembly();
  const std::int32_t n = sequence.cache().length();
  auto kept = std::make_shared<KeptContext>();
  kept->engine = &store;
  kept->tokens.assign(sequence.tokens().begin(), sequence.tokens().begin() + n);
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
  return kept;
}

std::vector<std::byte> bytes_of(const KeptContext& context, const SegmentStore& store) {
  std::vector<std::shared_ptr<const Segment>> segments;
  std::int32_t n = 0;
  for (const KeptContext::Piece& piece : context.pieces) {
    std::shared_ptr<const Segment> segment = context.engine == &store ? store.peek(piece.segment) : nullptr;
    if (!segment) break;
    segments.push_back(std::move(segment));
    n += piece.count;
  }
  if (segments.empty()) return {};
  const std::size_t row = segments.front()->row_bytes();
  const std::size_t matrix = static_cast<std::size_t>(n) * row;
  const std::int32_t layers = segments.front()->layout().layers;
  std::vector<std::byte> bytes(2 * matrix * static_cast<std::size_t>(layers));
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const KeptContext::Piece& piece = context.pieces[i];
    const std::size_t begin = static_cast<std::size_t>(piece.begin) * row;
    const std::size_t count = static_cast<std::size_t>(piece.count) * row;
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      const std::span layer_bytes = std::span(bytes).subspan(2 * static_cast<std::size_t>(layer) * matrix, 2 * matrix);
      segments[i]->copy_first_rows(layer, layer_bytes.subspan(begin, count),
                                   layer_bytes.subspan(matrix + begin, count));
    }
  }
  return bytes;
}

ContextHandle with_bytes(const std::shared_ptr<KeptContext>& context, const KvLayout& layout,
                         std::span<const std::byte> bytes, Backend& backend, SegmentStore& store) {
  const auto segment = std::make_shared<Segment>(backend, layout, context->tokens, bytes);
  const std::int32_t n = segment->length();
  const SegmentHandle handle = store.add(segment, 0);
  if (!handle) return nullptr;
  context->engine = &store;
  context->imported_kv = true;
  context->pieces = {{store.hold(handle), 0, n}};
  return context;
}

}  // namespace baton
