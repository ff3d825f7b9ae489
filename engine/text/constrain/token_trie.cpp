// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/token_trie.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/effort.h"
#include "engine/base/errors.h"

namespace baton {

std::string_view TokenBytes::of(TokenId id) const {
  const auto at = static_cast<std::size_t>(id);
  if (id < 0 || at >= ends_.size()) return {};
  const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(bytes_).substr(begin, ends_[at] - begin);
}

TokenTrie::TokenTrie(TokenBytes bytes_of_tokens, const std::stop_token& stop) : bytes_(std::move(bytes_of_tokens)) {
  Effort effort(std::numeric_limits<std::size_t>::max() - 1, stop);  // only for the stop: the bytes are bounded
  const auto spend = [&](std::size_t units) {
    if (!effort.take(units)) throw Interrupted();
  };
  for (TokenId id = 0; id < bytes_.size(); ++id) {
    if (!bytes_of(id).empty()) tokens_.push_back(id);
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](TokenId a, TokenId b) {
    spend(1 + std::min(bytes_of(a).size(), bytes_of(b).size()) / 16);
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
    spend(1 + bytes.size());
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
    spend(1);
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

}  // namespace baton
