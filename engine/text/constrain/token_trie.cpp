// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/token_trie.h"

#include <algorithm>
#include <string>

namespace baton {
namespace {

std::string bytes_at(const Tokenizer& tokenizer, TokenId id, TokenTrie::Place place) {
  std::string bytes = tokenizer.token_bytes(id);
  if (place == TokenTrie::Place::first && bytes.starts_with(' ')) return tokenizer.decode({&id, 1}, true);
  return bytes;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, Place place, std::int32_t vocabulary,
                     std::span<const TokenId> excluded) {
  const std::int32_t size = std::min(tokenizer.size(), vocabulary);
  for (TokenId id = 0; id < size; ++id) {
    begin_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    if (std::find(excluded.begin(), excluded.end(), id) == excluded.end()) bytes_ += bytes_at(tokenizer, id, place);
  }
  begin_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  for (TokenId id = 0; id < size; ++id) {
    if (!bytes_of(id).empty()) tokens_.push_back(id);
  }
  std::sort(tokens_.begin(), tokens_.end(), [this](TokenId a, TokenId b) {
    const int order = bytes_of(a).compare(bytes_of(b));
    return order != 0 ? order < 0 : a < b;
  });

  std::vector<std::uint32_t> open;  // the nodes of the token before
  std::string_view before;
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) nodes_[open.back()].skip = static_cast<std::uint32_t>(nodes_.size());
  };
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view bytes = bytes_of(tokens_[i]);
    max_depth_ = std::max(max_depth_, bytes.size());
    close(static_cast<std::size_t>(std::mismatch(before.begin(), before.end(), bytes.begin(), bytes.end()).first -
                                   before.begin()));
    for (std::size_t at = open.size(); at < bytes.size(); ++at) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(at + 1), 0,
                        static_cast<std::uint8_t>(bytes[at])});
    }
    ++nodes_[open.back()].own;
    before = bytes;
  }
  close(0);

  below_.resize(nodes_.size());
  for (std::size_t i = nodes_.size(); i-- > 0;) {  // children come behind their parents
    for (std::size_t child = i + 1; child < nodes_[i].skip; child = nodes_[child].skip) {
      const std::uint8_t byte = nodes_[child].byte;
      Below& below = below_[i];
      below.height = std::max(below.height, below_[child].height + 1);
      below.others = below.others || below_[child].others || byte >= 128;
      for (std::size_t half = 0; half < 2; ++half) below.ascii[half] |= below_[child].ascii[half];
      if (byte < 128) below.ascii[byte / 64] |= std::uint64_t{1} << (byte % 64);
    }
  }
}

std::string_view TokenTrie::bytes_of(TokenId id) const {
  const auto at = static_cast<std::size_t>(id);
  if (id < 0 || at + 1 >= begin_.size()) return {};
  return std::string_view(bytes_).substr(begin_[at], begin_[at + 1] - begin_[at]);
}

}  // namespace baton
