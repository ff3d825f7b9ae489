// SPDX-License-Identifier: Apache-2.0
#include "engine/text/longest_match.h"

#include <algorithm>

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

}  // namespace baton::text
