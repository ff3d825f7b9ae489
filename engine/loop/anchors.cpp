// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/anchors.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/errors.h"
#include "engine/kv/segment.h"

namespace baton {
namespace {

constexpr std::size_t kMaxFollowed = 64;  // maximum anchors that one answer is compared with while it is decoded

std::uint64_t hash_of(const std::string& name, std::uint64_t seed) {
  const std::vector<TokenId> letters(name.begin(), name.end());
  return baton::hash_of(letters, seed ^ 0x5107);
}

AnchorShape shape_of(const KvLayout& layout) { return {layout.layers, layout.shape.kv_heads * layout.shape.head_dim}; }

}  // namespace

std::vector<AnchorKey> places_of(const std::vector<PromptPart>& prompt, const std::string& pool) {
  std::vector<AnchorKey> places(prompt.size());
  std::uint64_t context = 0;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const bool text = prompt[i].slot.empty();
    context = text ? baton::hash_of(prompt[i].tokens, context) : hash_of(prompt[i].slot, context);
    if (text) continue;
    places[i] = {context, prompt[i].slot, pool};
    for (std::size_t next = i + 1; next < prompt.size() && prompt[next].slot.empty(); ++next)
      places[i].context = baton::hash_of(prompt[next].tokens, places[i].context);
  }
  return places;
}

AnchorTurn Anchors::look(const GenerationRequest& request, const AnchorOptions& options,
                         std::span<const std::shared_ptr<const Segment>> segments) {
  AnchorTurn turn;
  turn.slots.resize(request.prompt.size());
  turn.reader = request.reader;
  const std::vector<AnchorKey> places = places_of(request.prompt, options.pool);
  std::vector<SharedText> before;
  std::int32_t at = 0;
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const PromptPart& part = request.prompt[i];
    const std::int32_t begin = at;
    at += static_cast<std::int32_t>(part.tokens.size());
    if (part.slot.empty()) continue;
    const SharedText text = sketcher_.sketch(
        std::span(part.tokens)
            .first(segments[i] ? static_cast<std::size_t>(segments[i]->length()) : part.tokens.size()));
    if (segments[i]) {
      AnchorSlot& slot = turn.slots[i].emplace();
      slot.begin = begin;
      slot.segment = segments[i];
      slot.text = text;
      slot.before = before;
      slot.key = places[i];
      for (std::size_t next = i + 1; next < request.prompt.size() && request.prompt[next].slot.empty(); ++next)
        slot.following += static_cast<std::int32_t>(request.prompt[next].tokens.size());
      // The last token of a truncated answer has no KV, so the text after the answer does not begin where the KV ends.
      if (segments[i]->length() < static_cast<std::int32_t>(part.tokens.size())) slot.following = 0;
    }
    before.push_back(text);
  }
  Pools pools(turn.slots.size());
  for (std::size_t i = 0; i < pools.size(); ++i) {
    if (turn.slots[i]) pools[i] = store_.ask(turn.slots[i]->key);
  }
  if (options.aligned) compare(turn, pools);
  bool check = false;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    std::optional<AnchorSlot>& slot = turn.slots[i];
    if (!slot) continue;
    const AnchorPoolView& pool = pools[i];
    slot->choice = choose_anchors(options, pool, slot->text, slot->before, memo_,
                                  [this](const SketchedText& text, const SketchedText& other) {
                                    return sketcher_.embedding_distance(text, other);
                                  });
    turn.learning = turn.learning || slot->choice.kind == AnchorChoice::Kind::learn;
    check = check || (options.check > 0 && pool.since_learning + 1 >= static_cast<std::uint64_t>(options.check));
  }
  for (std::optional<AnchorSlot>& slot : turn.slots) {
    if (!slot) continue;
    if (!turn.learning && check) slot->choice.reason = "computed to measure the pool's error";
    if (turn.learning && slot->choice.kind != AnchorChoice::Kind::learn)
      slot->choice.reason = "computed, because another text of the prompt becomes an anchor";
    if (turn.learning || check) {
      store_.learning(slot->key);
    } else if (slot->choice.kind != AnchorChoice::Kind::refuse) {
      for (std::size_t a = 0; a < slot->choice.anchors.size(); ++a) ++slot->choice.anchors[a]->uses;
    }
  }
  turn.learning = turn.learning || check;
  return turn;
}

/// Aligns, in one batch, all pairs of texts that the choice will ask for and that are not aligned yet.
void Anchors::compare(const AnchorTurn& turn, const Pools& pools) {
  memo_.trim();
  std::map<const SketchedText*, std::vector<std::int32_t>> rows;
  std::vector<std::pair<SharedText, SharedText>> texts;
  const auto want = [&](const SharedText& text, const SharedText& other) {
    for (const SharedText& one : {text, other}) {
      if (!rows.contains(one.get())) rows[one.get()] = sketcher_.rows_of(*one);
      if (rows[one.get()].size() != one->tokens.size()) return;  // text of a file with tokens of another vocabulary
    }
    if (memo_.expects(text, other)) texts.emplace_back(text, other);
  };
  for (std::size_t i = 0; i < pools.size(); ++i) {
    for (const SharedAnchor& anchor : pools[i].anchors) {
      const AnchorSlot& slot = *turn.slots[i];
      want(slot.text, anchor->text);
      for (std::size_t b = 0; b < slot.before.size() && b < anchor->before.size(); ++b)
        want(slot.before[b], anchor->before[b]);
    }
  }
  if (texts.empty()) return;
  std::vector<TextPair> pairs;
  for (const auto& [text, other] : texts) pairs.push_back({rows[text.get()], rows[other.get()]});
  try {
    std::vector<Alignment> alignments = backend_.align(sketcher_.table(), pairs);
    for (std::size_t i = 0; i < texts.size(); ++i) memo_.add(texts[i].first, texts[i].second, std::move(alignments[i]));
  } catch (const BackendError&) {  // without device memory, the pairs are aligned one by one on the host
  }
}

void Anchors::insert(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, std::int32_t first,
                     const AnchorOptions& options, LayerSpan layers) {
  const auto n = static_cast<std::size_t>(slot.length() - first);
  if (slot.length() <= first) return;
  std::vector<std::vector<std::int32_t>> rows;
  if (options.offsets != AnchorOptions::Offsets::none) {
    for (std::size_t a = 0; a < slot.choice.anchors.size(); ++a) {
      std::vector<std::int32_t>& row = rows.emplace_back();
      for (std::size_t i = 0; i < n; ++i)
        row.push_back(std::min(slot.choice.alignments[a]->to[static_cast<std::size_t>(first) + i],
                               slot.choice.anchors[a]->length - 1));
    }
  }
  std::vector<CorrectionSource> sources;
  for (std::size_t a = 0; a < rows.size(); ++a) {
    const SharedAnchor& anchor = slot.choice.anchors[a];
    sources.push_back({memory_.offset(anchor), rows[a], slot.choice.weights[a], 1});
  }
  const std::int32_t turned = options.rotate ? slot.begin : slot.segment->position;
  place_corrected(backend_, angles, cache, slot.begin + first, turned + first, slot.segment.get(), first,
                  static_cast<std::int32_t>(n), sources, layers);
}

void Anchors::insert_text(RopeTable& angles, KvCache& cache, const AnchorSlot& slot, const AnchorOptions& options) {
  if (slot.following == 0) return;
  std::vector<std::int32_t> row(static_cast<std::size_t>(slot.following));
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::int32_t>(i);
  // The weights sum to 1, so the text's own KV cancels out and the mean of its KV in the anchors' prompts is left.
  std::vector<CorrectionSource> sources;
  for (std::size_t a = 0; a < slot.choice.anchors.size(); ++a) {
    const SharedAnchor& anchor = slot.choice.anchors[a];
    const bool base = options.text == AnchorOptions::Text::base;
    sources.push_back({memory_.text(anchor), row, base ? 1.0f : slot.choice.weights[a], 0});
    if (base) break;
  }
  const std::int32_t begin = slot.begin + slot.length();
  place_corrected(backend_, angles, cache, begin, begin, nullptr, 0, slot.following, sources);
}

void Anchors::learn(const AnchorTurn& turn, const KvCache& cache, const AnchorOptions& options) {
  for (const std::optional<AnchorSlot>& slot : turn.slots) {
    if (!slot) continue;
    if (options.as_published && slot->choice.kind != AnchorChoice::Kind::learn)
      continue;  // eq. 5 decides for each text
    AnchorSample sample;
    sample.key = slot->key;
    sample.reader = turn.reader;
    sample.size = options.size;
    sample.shape = shape_of(cache.layout());
    sample.text = slot->text;
    sample.before = slot->before;
    sample.length = slot->length();
    sample.truth = kv_on_host(backend_, cache, slot->begin, slot->length());
    sample.base = kv_on_host(backend_, *slot->segment);
    sample.generated = !slot->segment->entropy.empty();
    sample.following = slot->following;
    sample.text_kv = kv_on_host(backend_, cache, slot->begin + slot->length(), slot->following);
    sample.choice = slot->choice;
    store_.learn(std::move(sample));
  }
}

/// Where it fails, some aligners have tokens that others lack: the next call begins anew, with all of the answer.
void Anchors::follow(RequestId id, const std::string& slot, const std::string& pool,
                     std::span<const TokenId> answer) noexcept {
  if (!try_to([&] { compare_ahead(id, slot, pool, answer); })) following_.erase(id);
}

void Anchors::compare_ahead(RequestId id, const std::string& slot, const std::string& pool,
                            std::span<const TokenId> answer) {
  const auto [entry, added] = following_.try_emplace(id);
  Follower& follower = entry->second;
  if (added) {
    for (const SharedAnchor& anchor : store_.anchors(slot, pool, kMaxFollowed)) {
      try {
        memory_.upload(anchor);
      } catch (const BackendError&) {  // without memory now, the readers will upload the anchor when they need it
      }
      if (!compares_ahead_) continue;
      const bool known = std::any_of(follower.others.begin(), follower.others.end(),
                                     [&](const SharedText& text) { return text->hash == anchor->text->hash; });
      if (known) continue;
      follower.others.push_back(anchor->text);
      follower.aligners.emplace_back(anchor->text->sketch);
    }
  }
  if (follower.aligners.empty() || answer.size() <= follower.tokens) return;
  const SharedText fresh = sketcher_.sketch(answer.subspan(follower.tokens));
  for (std::int64_t i = 0; i < fresh->size(); ++i) {
    for (Aligner& aligner : follower.aligners) aligner.push(fresh->sketch.data() + i * SketchedText::kSketch);
  }
  follower.tokens = answer.size();
}

void Anchors::ended(RequestId id, std::span<const TokenId> answer, std::int32_t with_kv) {
  const auto found = following_.extract(id);
  if (found.empty()) return;
  const Follower& follower = found.mapped();
  if (with_kv == static_cast<std::int32_t>(answer.size()) && !answer.empty()) {
    const SharedText text = sketcher_.sketch(answer);  // also for the readers: tokens are projected once
    // The compared text must equal the text that readers get; a stop string may have cut it.
    for (std::size_t i = 0; i < follower.aligners.size() && follower.tokens == answer.size(); ++i)
      memo_.add(text, follower.others[i], follower.aligners[i].result());
    memo_.trim();
  }
}

}  // namespace baton
