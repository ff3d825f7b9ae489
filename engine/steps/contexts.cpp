// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/contexts.h"

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

std::int32_t context_length(const GenerationRequest& request, std::span<const TokenId> prompt,
                            const SegmentStore& store) {
  if (!request.context || request.reuse.method->prefixes == Method::Prefixes::never) return 0;
  const KeptContext& context = *request.context;
  if (context.engine != &store) return 0;
  const auto same =
      std::mismatch(context.tokens.begin(), context.tokens.end(), prompt.begin(), prompt.end()).second - prompt.begin();
  const std::int32_t length = std::min(static_cast<std::int32_t>(same), max_prefix(request));
  return std::max(0, takes_segments(request.reuse) ? length : std::min(length, context.exact));
}

PrefixCache::Match find_context(const GenerationRequest& request, std::span<const TokenId> prompt,
                                SegmentStore& store) {
  PrefixCache::Match match;
  const std::int32_t length = context_length(request, prompt, store);
  if (length == 0) return match;
  for (const KeptContext::Piece& piece : request.context->pieces) {
    if (piece.begin >= length) break;
    std::shared_ptr<const Segment> segment = store.read(piece.segment);
    if (!segment) break;
    match.length = std::min(piece.begin + piece.count, length);
    match.pieces.push_back({std::move(segment), piece.begin, match.length - piece.begin});
  }
  return match;
}

ContextHandle keep_context(Sequence& sequence, Backend& backend, SegmentStore& store, const PrefixCache& prefixes) {
  const PromptAssembly& assembly = sequence.assembly();
  const std::int32_t n = sequence.cache().length();
  auto kept = std::make_shared<KeptContext>();
  kept->engine = &store;
  kept->tokens.assign(sequence.tokens().begin(), sequence.tokens().begin() + n);
  kept->hops = assembly.hops;
  kept->exact = assembly.hops == 0 ? n : std::min(n, assembly.exact_length);
  if (assembly.continued() > 0) kept->pieces = share(sequence.request().context->pieces, assembly.continued(), store);
  const std::vector<KeptContext::Piece> cached =
      prefixes.pieces(std::span(kept->tokens).first(static_cast<std::size_t>(kept->exact)));
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
                         std::span<const std::byte> bytes, Backend& backend, SegmentStore& store,
                         PrefixCache& prefixes) {
  const std::vector<TokenId>& tokens = context->tokens;
  const auto matrices = static_cast<std::size_t>(2 * layout.layers);
  if (tokens.empty() || bytes.size() % (matrices * tokens.size()) != 0)
    throw std::invalid_argument("context: the KV is not that of the tokens");
  const std::size_t row = bytes.size() / matrices / tokens.size();
  const auto segment = [&](std::int32_t begin, std::int32_t end) {
    std::vector<std::byte> part;
    for (std::size_t i = 0; i < matrices; ++i) {
      const auto matrix = bytes.subspan(i * row * tokens.size(), row * tokens.size());
      const auto rows =
          matrix.subspan(row * static_cast<std::size_t>(begin), row * static_cast<std::size_t>(end - begin));
      part.insert(part.end(), rows.begin(), rows.end());
    }
    return std::make_shared<const Segment>(backend, layout,
                                           std::vector<TokenId>(tokens.begin() + begin, tokens.begin() + end), part);
  };
  context->engine = &store;
  const auto exact = std::span(tokens).first(static_cast<std::size_t>(context->exact));
  if (!exact.empty()) prefixes.add(exact, 1, [&](std::int32_t begin) { return segment(begin, context->exact); });
  context->pieces = share(prefixes.pieces(exact), context->exact, store);
  const auto n = static_cast<std::int32_t>(tokens.size());
  if (const std::int32_t at = end_of(context->pieces); at < n) {
    const SegmentHandle handle = store.add(segment(at, n), 0);
    if (!handle) return nullptr;
    context->pieces.push_back({store.hold(handle), at, n - at});
  }
  return context;
}

}  // namespace baton
