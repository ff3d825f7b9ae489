// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/prompt_part.h"

#include <numeric>

#include "engine/base/hash.h"

namespace baton {
namespace {

std::uint64_t hash_of_tokens(std::span<const TokenId> tokens, std::uint64_t seed) {
  return hash_bytes(tokens.data(), tokens.size_bytes(), seed);
}

std::uint64_t hash_of_name(const std::string& name, std::uint64_t seed) {
  const std::vector<TokenId> letters(name.begin(), name.end());
  return hash_of_tokens(letters, seed ^ 0x5107);
}

}  // namespace

std::int64_t KvWidth::before(std::int32_t index) const {
  return std::accumulate(of.begin(), of.begin() + index, std::int64_t{0});
}

KvWidth width_of(const KvLayout& layout) {
  KvWidth width;
  for (const KvShape& shape : layout.shapes) width.of.push_back(static_cast<std::int32_t>(shape.width()));
  return width;
}

std::vector<PlaceKey> places_of(std::span<const PromptPart> prompt, const std::string& pool) {
  std::vector<PlaceKey> places(prompt.size());
  std::uint64_t context = 0;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const bool text = prompt[i].slot.empty();
    context = text ? hash_of_tokens(prompt[i].tokens, context) : hash_of_name(prompt[i].slot, context);
    if (text) continue;
    places[i] = {context, prompt[i].slot, pool};
    for (std::size_t next = i + 1; next < prompt.size() && prompt[next].slot.empty(); ++next)
      places[i].context = hash_of_tokens(prompt[next].tokens, places[i].context);
  }
  return places;
}

}  // namespace baton
