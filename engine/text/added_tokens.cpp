// SPDX-License-Identifier: Apache-2.0
#include "engine/text/added_tokens.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"
#include "engine/text/text_pattern.h"

namespace baton::text {
namespace {

bool word_before(std::string_view text, std::size_t at) {
  return at > 0 && is_word(utf8::at(text, utf8::before(text, at)).value);
}

bool word_after(std::string_view text, std::size_t at) { return at < text.size() && is_word(utf8::at(text, at).value); }

std::size_t spaces_before(std::string_view text, std::size_t at) {
  while (at > 0 && is_space(utf8::at(text, utf8::before(text, at)).value)) at = utf8::before(text, at);
  return at;
}

std::size_t spaces_after(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(utf8::at(text, at).value)) at += utf8::at(text, at).bytes;
  return at;
}

std::uint64_t edge(std::uint32_t node, char byte) {
  return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& written)
    : tokens_(std::move(tokens)), token_of_node_{-1} {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (written[i].empty()) continue;
    std::uint32_t node = 0;
    for (const char byte : written[i]) {
      const auto [it, fresh] = edges_.emplace(edge(node, byte), static_cast<std::uint32_t>(token_of_node_.size()));
      if (fresh) token_of_node_.push_back(-1);
      node = it->second;
    }
    if (token_of_node_[node] < 0) token_of_node_[node] = static_cast<std::int32_t>(i);
  }
}

AddedTokenFinder::Found AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  Found found;
  std::uint32_t node = 0;
  while (at < text.size()) {
    const auto it = edges_.find(edge(node, text[at++]));
    if (it == edges_.end()) break;
    node = it->second;
    if (token_of_node_[node] >= 0) found = {at, &tokens_[static_cast<std::size_t>(token_of_node_[node])]};
  }
  return found;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::split(std::string_view text, bool skip_special) const {
  std::vector<Part> parts;
  std::size_t done = 0;
  for (std::size_t at = 0; !edges_.empty() && at < text.size();) {
    const auto [end, token] = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const std::size_t match = at;
    at = end;  // also for a rejected match, since `tokenizers` does not search inside a match
    if (skip_special && token->special) continue;
    if (token->single_word && (word_before(text, match) || word_after(text, end))) continue;
    const std::size_t begin = token->lstrip ? std::max(spaces_before(text, match), done) : match;
    if (begin > done) parts.push_back({done, begin, nullptr});
    done = token->rstrip ? spaces_after(text, end) : end;
    parts.push_back({begin, done, token});
  }
  if (done < text.size()) parts.push_back({done, text.size(), nullptr});
  return parts;
}

std::vector<AddedToken> parse_added_tokens(const Json* list, Vocabulary& vocabulary, const Where& where) {
  std::vector<AddedToken> out;
  if (list == nullptr) return out;
  if (!list->is_array()) where.fail("expected a list");
  const TokenId limit = id_limit(static_cast<std::size_t>(vocabulary.size()) + list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& value = (*list)[i];
    const Where inside = where.in(i);
    AddedToken token;
    token.content = string_member(value, "content", inside);
    token.id = index_of(member(value, "id", inside), limit, inside.in("id"));
    token.special = bool_member(value, "special", false, inside);
    token.normalized = bool_member(value, "normalized", !token.special, inside);
    token.single_word = bool_member(value, "single_word", false, inside);
    token.lstrip = bool_member(value, "lstrip", false, inside);
    token.rstrip = bool_member(value, "rstrip", false, inside);
    if (token.content.empty()) inside.fail("found an added token without text");
    vocabulary.add(token.content, token.id, inside);
    out.push_back(std::move(token));
  }
  return out;
}

AddedTokens make_finders(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  std::array<std::vector<AddedToken>, 2> sorted;  // [normalized]
  std::array<std::vector<std::string>, 2> written;
  for (const AddedToken& token : tokens) {
    bool keeps_start = true;
    sorted[token.normalized].push_back(token);
    written[token.normalized].push_back(token.normalized ? normalizer.apply(token.content, keeps_start)
                                                         : token.content);
  }
  return {AddedTokenFinder(std::move(sorted[0]), written[0]), AddedTokenFinder(std::move(sorted[1]), written[1])};
}

}  // namespace baton::text
