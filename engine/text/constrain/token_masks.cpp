// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/token_masks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/base/utf8.h"

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
  std::string path;                                 // the bytes up to a node
  std::vector<std::size_t> begins(max_depth_ + 1);  // for each length of it: where its last character begins
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::size_t depth = nodes_[i].depth, begin = begins[depth - 1];
    path.resize(depth - 1);
    path.push_back(static_cast<char>(nodes_[i].byte));
    const utf8::Scan kind = utf8::scan(path, begin).kind;
    below_[i].broken = kind == utf8::Scan::broken;
    begins[depth] = kind == utf8::Scan::valid ? depth : begin;
  }
  for (std::size_t i = nodes_.size(); i-- > 0;) {  // children come behind their parents
    spend(1);
    Below& below = below_[i];
    for (std::size_t child = i + 1; child < nodes_[i].skip; child = nodes_[child].skip) {
      below.length = std::max(below.length, below_[child].length);
      below.others = below.others || below_[child].others;
      for (std::size_t half = 0; half < 2; ++half) below.ascii[half] |= below_[child].ascii[half];
      below.broken = below.broken || below_[child].broken;
    }
    const std::uint8_t byte = nodes_[i].byte;
    if (byte < 128)
      below.ascii[byte / 64] |= std::uint64_t{1} << (byte % 64);
    else
      below.others = true;
    below.length += utf8::continues(static_cast<char>(byte)) ? 0 : 1;
  }
}

namespace {

constexpr std::size_t kManyNodes = 8;  // nodes of the trie: fewer are faster walked

void allow(std::vector<std::uint32_t>& bits, TokenId id) {
  bits[static_cast<std::size_t>(id) / 32] |= 1u << (static_cast<std::size_t>(id) % 32);
}

/// True when all that stands at a node of the trie and below may follow.
bool may_all_follow(const TokenTrie::Below& below, const GrammarStates::FreeRun& run) {
  return !below.broken && (!below.others || run.others) && below.length <= run.length &&
         (below.ascii[0] & ~run.ascii[0]) == 0 && (below.ascii[1] & ~run.ascii[1]) == 0;
}

}  // namespace

MaskVocabulary::MaskVocabulary(const Tokenizer& tokenizer, std::int32_t ids, std::span<const TokenId> eos_ids,
                               const std::stop_token& stop)
    : size(ids), eos(eos_ids.begin(), eos_ids.end()) {
  TokenBytes at_first, behind;
  bool differ = false;
  const auto read = [&](TokenId id, std::string_view bytes, std::string_view bytes_at_first) {
    if (id >= ids) return;
    const bool ends = std::find(eos.begin(), eos.end(), id) != eos.end();
    if (ends || bytes.find(kSpecialMark) != std::string_view::npos) bytes = bytes_at_first = {};
    std::string special;  // a grammar allows it by its name alone
    if (!ends && tokenizer.is_special(id))
      bytes = bytes_at_first = special = special_text(tokenizer.decode(std::span(&id, 1), false));
    behind.add(bytes);
    at_first.add(bytes_at_first);
    differ = differ || behind.of(id) != at_first.of(id);
  };
  tokenizer.read_tokens(read, stop);
  later = std::make_shared<const TokenTrie>(std::move(behind), stop);
  first = differ ? std::make_shared<const TokenTrie>(std::move(at_first), stop) : later;
}

TokenMasks::TokenMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const MaskVocabulary> vocabulary,
                       std::size_t max_bytes)
    : states_(std::move(grammar)), max_bytes_(max_bytes), vocabulary_(std::move(vocabulary)) {}

TokenMasks::Places TokenMasks::start() { return states_.start()->places; }

/// Forgets what was cached once it is too much. The states of a single mask are bounded by GrammarStates.
GrammarStates::State* TokenMasks::state_of(const Places& places) {
  const std::size_t words = static_cast<std::size_t>(vocabulary_->size) / 32 + 1;
  if (states_.crowded() || (masks_.size() + 1) * words * sizeof(std::uint32_t) > max_bytes_) {
    masks_.clear();
    states_.clear();
  }
  return states_.find(places);
}

TokenMask TokenMasks::mask(const Places& places, bool first) {
  GrammarStates::State* state = state_of(places);
  const bool own = first && vocabulary_->first != vocabulary_->later;
  const std::uint64_t key = std::uint64_t{state->id} * 2 + (own ? 1 : 0);
  if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(vocabulary_->size) / 32 + 1, 0);
  walk(own ? *vocabulary_->first : *vocabulary_->later, state, bits);
  if (places->ends) {
    for (const TokenId id : vocabulary_->eos) {
      if (id >= 0 && id < vocabulary_->size) allow(bits, id);
    }
  }
  return masks_.emplace(key, std::move(bits)).first->second;
}

void TokenMasks::walk(const TokenTrie& trie, GrammarStates::State* state, std::vector<std::uint32_t>& bits) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  const std::span<const TokenId> tokens = trie.tokens();
  path_.resize(trie.max_depth() + 1);
  path_[0] = state;
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    GrammarStates::State* before = path_[node.depth - 1];
    if (node.skip - i > kManyNodes && may_all_follow(trie.below(i), states_.free_run(before))) {
      for (std::size_t token = node.tokens; token < trie.tokens_end(node); ++token) allow(bits, tokens[token]);
      i = node.skip;
      continue;
    }
    GrammarStates::State* next = states_.next(before, node.byte);
    if (next->dead()) {
      i = node.skip;
      continue;
    }
    path_[node.depth] = next;
    for (std::size_t token = node.tokens; token < node.tokens + node.own; ++token) allow(bits, tokens[token]);
    ++i;
  }
}

TokenMasks::Places TokenMasks::next(const Places& places, bool first, TokenId token) {
  const std::string_view bytes = (first ? *vocabulary_->first : *vocabulary_->later).bytes_of(token);
  if (bytes.empty()) return nullptr;
  GrammarStates::State* state = state_of(places);
  for (const char byte : bytes) {
    state = states_.next(state, static_cast<std::uint8_t>(byte));
    if (state->dead()) return nullptr;
  }
  return state->places;
}

bool AnswerMatcher::take(TokenId token) {
  TokenMasks::Places next = masks_->next(places(), first_, token);
  if (next == nullptr) return false;
  places_ = std::move(next);
  first_ = false;
  return true;
}

void AnswerMatcher::restart() {
  places_ = nullptr;
  first_ = true;
}

const TokenMasks::Places& AnswerMatcher::places() {
  if (places_ == nullptr) places_ = masks_->start();
  return places_;
}

}  // namespace baton
