// SPDX-License-Identifier: Apache-2.0
#include "engine/text/added_tokens.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "engine/base/utf8.h"
#include "engine/text/regex.h"

namespace baton::text {
namespace {

std::uint64_t edge(std::uint32_t node, unsigned char byte) { return static_cast<std::uint64_t>(node) << 8 | byte; }

}  // namespace

LongestMatch::LongestMatch(const std::vector<std::string>& texts) : nodes_(1) {
  struct Step {
    std::uint32_t node = 0;
    std::uint32_t parent = 0;
    unsigned char byte = 0;
    std::uint32_t depth = 0;
  };
  std::vector<Step> steps;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sizes_.push_back(texts[i].size());
    if (texts[i].empty()) continue;
    std::uint32_t node = 0, depth = 0;
    for (auto at = texts[i].rbegin(); at != texts[i].rend(); ++at) {
      const auto byte = static_cast<unsigned char>(*at);
      std::uint32_t& child = node == 0 ? first_[byte] : edges_[edge(node, byte)];
      ++depth;
      if (child == 0) {
        child = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back();
        steps.push_back({child, node, byte, depth});
      }
      node = child;
    }
    if (nodes_[node].longest < 0) nodes_[node].longest = static_cast<std::int32_t>(i);
  }
  // The fallback of a node needs those of all shorter texts.
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.depth < b.depth; });
  for (const Step& step : steps) {
    Node& node = nodes_[step.node];
    if (step.parent != 0) node.fallback = next(nodes_[step.parent].fallback, step.byte);
    if (node.longest < 0) node.longest = nodes_[node.fallback].longest;
  }
}

std::uint32_t LongestMatch::next(std::uint32_t node, unsigned char byte) const {
  for (; node != 0; node = nodes_[node].fallback) {
    if (const auto it = edges_.find(edge(node, byte)); it != edges_.end()) return it->second;
  }
  return first_[byte];
}

std::vector<LongestMatch::Match> LongestMatch::find(std::string_view text, TextWork& work) const {
  std::vector<Match> out;
  if (empty()) return out;
  std::uint32_t node = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    work.spend(node == 0 ? 1 : 4);
    node = next(node, static_cast<unsigned char>(text[i]));
    const std::int32_t longest = nodes_[node].longest;
    if (longest < 0) continue;
    work.check_pieces(out.size() + 1);
    out.push_back({i, i + sizes_[static_cast<std::size_t>(longest)], longest});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

namespace {

bool word_before(std::string_view text, std::size_t at) {
  return at > 0 && is_word(utf8::at(text, utf8::before(text, at)).value);
}

bool word_after(std::string_view text, std::size_t at) { return at < text.size() && is_word(utf8::at(text, at).value); }

/// Returns where the blanks before `at` begin, looking back to `end` at most.
std::size_t spaces_before(std::string_view text, std::size_t at, std::size_t end) {
  while (at > end && is_space(utf8::at(text, utf8::before(text, at)).value)) at = utf8::before(text, at);
  return std::max(at, end);
}

/// Finds where blanks end, for ascending positions; blanks are read once.
class SpacesAfter {
 public:
  explicit SpacesAfter(std::string_view text) : text_(text) {}
  std::size_t operator()(std::size_t at) {
    end_ = std::max(end_, at);  // everything from an earlier position to end_ is blank
    while (end_ < text_.size() && is_space(utf8::at(text_, end_).value)) end_ += utf8::at(text_, end_).bytes;
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t end_ = 0;
};

}  // namespace

bool AddedToken::is_marker() const {
  const bool named = content.size() > 2 && content.find_first_of(" \t\r\n") == std::string::npos;
  const auto between = [&](char begin, char end) { return content.front() == begin && content.back() == end; };
  return special || (named && (between('<', '>') || between('[', ']')));
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::split(std::string_view text, bool skip_markers,
                                                            TextWork& work) const {
  std::vector<Part> parts;
  SpacesAfter spaces_after(text);
  std::size_t done = 0, at = 0;
  for (const auto& [match, end, index] : written_.find(text, work)) {
    if (match < at) continue;
    work.spend(2);
    work.check_pieces(parts.size() + 2);
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    at = end;  // also for a rejected match, since `tokenizers` does not search inside a match
    if (skip_markers && token.is_marker()) continue;
    if (token.single_word && (word_before(text, match) || word_after(text, end))) continue;
    const std::size_t begin = token.lstrip ? spaces_before(text, match, done) : match;
    if (begin > done) parts.push_back({done, begin, nullptr});
    done = token.rstrip ? spaces_after(end) : end;
    parts.push_back({begin, done, &token});
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

AddedTokens make_finders(const std::vector<AddedToken>& tokens, const Normalizer& normalizer, TextWork& work) {
  std::array<std::vector<AddedToken>, 2> sorted;  // [normalized]
  std::array<std::vector<std::string>, 2> written;
  for (const AddedToken& token : tokens) {
    bool keeps_start = true;
    sorted[token.normalized].push_back(token);
    written[token.normalized].push_back(token.normalized ? normalizer.apply(token.content, keeps_start, work)
                                                         : token.content);
  }
  return {AddedTokenFinder(std::move(sorted[0]), written[0]), AddedTokenFinder(std::move(sorted[1]), written[1])};
}

}  // namespace baton::text
