// SPDX-License-Identifier: Apache-2.0
#include "engine/text/word_split.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::text {
namespace {

/// Joins spans as the behaviour says; what is to go is taken out.
void arrange(std::vector<Span>& spans, Matches behaviour) {
  switch (behaviour) {
    case Matches::isolated:
      return;
    case Matches::removed:
      std::erase_if(spans, [](const Span& span) { return span.match; });
      return;
    case Matches::merged_with_next:
      std::reverse(spans.begin(), spans.end());
      break;
    case Matches::merged_with_previous:
    case Matches::contiguous:
      break;
  }
  std::size_t kept = 0;
  bool last_matched = false;
  for (const Span& span : spans) {
    const bool join = behaviour == Matches::contiguous ? span.match == last_matched : span.match && !last_matched;
    last_matched = span.match;
    if (join && kept > 0) {
      spans[kept - 1].begin = std::min(spans[kept - 1].begin, span.begin);
      spans[kept - 1].end = std::max(spans[kept - 1].end, span.end);
    } else {
      spans[kept++] = span;
    }
  }
  spans.resize(kept);
  if (behaviour == Matches::merged_with_next) std::reverse(spans.begin(), spans.end());
}

}  // namespace

Matches parse_behaviour(const std::string& name, const Where& where) {
  if (name == "Isolated") return Matches::isolated;
  if (name == "Removed") return Matches::removed;
  if (name == "MergedWithPrevious") return Matches::merged_with_previous;
  if (name == "MergedWithNext") return Matches::merged_with_next;
  if (name == "Contiguous") return Matches::contiguous;
  where.fail(fmt::format("the behaviour {} is not supported", in_quotes(name)));
}

void WordSplit::apply(Words& words, TextWork& work) const {
  std::vector<Words::Word> out;
  std::vector<Span> spans;
  for (const Words::Word& word : words.words) {
    spans.clear();
    work.spend(2);
    pattern_->split(std::string_view(words.text).substr(word.begin, word.end - word.begin), spans, work);
    if (inverted_) {
      for (Span& span : spans) span.match = !span.match;
    }
    arrange(spans, behaviour_);
    work.check_pieces(out.size() + spans.size());
    for (const Span& span : spans) {
      if (span.begin == span.end) continue;
      out.push_back({word.begin + span.begin, word.begin + span.end, word.starts_text && span.begin == 0});
    }
  }
  words.words = std::move(out);
}

}  // namespace baton::text
