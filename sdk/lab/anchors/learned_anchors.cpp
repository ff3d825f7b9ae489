// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/anchors/learned_anchors.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/reuse/anchors/anchors.h"

namespace baton::inline v1::lab {
namespace {

constexpr const char* kLearnedPool = "learned";  // of the anchors that the engine learned itself

std::string pool_name(int anchors, int repeat) { return fmt::format("{} anchors, repeat {}", anchors, repeat); }

class LearnedAnchors : public LearnedState {
 public:
  explicit LearnedAnchors(std::uint64_t seed) : seed_(seed) {}

  void learn(ReuseOptions& reuse) const override { own<AnchorOptions>(reuse).pool = kLearnedPool; }

  void use(ReuseOptions& reuse, int count, int repeat) const override {
    AnchorOptions& anchors = own<AnchorOptions>(reuse);
    anchors.pool = pool_name(count, repeat);
    anchors.gate = AnchorOptions::Gate::none;
    anchors.check = 0;
    anchors.size = 1000;
  }

  void fill(MethodState& of, int count, int repeat) override {
    std::uint64_t state = seed_ * 2 + 1 + static_cast<std::uint64_t>(repeat);
    for (const auto& [key, pool] : anchor_store_of(of).all()) {
      if (key.pool != kLearnedPool) continue;
      const Anchor& like = *pool.anchors.front();
      if (like.length == 0) continue;  // of sizes measured before
      for (int i = 0; i < count; ++i)
        anchor_store_of(of).add({key.context, key.slot, pool_name(count, repeat)}, random_anchor(like, i, state),
                                count);
    }
  }

  /// A pool keeps its youngest anchor, so the last one is of nothing.
  void clear(MethodState& of) const override {
    for (const auto& [key, pool] : anchor_store_of(of).all()) {
      auto empty = std::make_shared<Anchor>();
      empty->text = std::make_shared<SketchedText>();
      anchor_store_of(of).add(key, std::move(empty), 1);
    }
  }

  double bytes_per_token(MethodState& of) const override {
    double bytes = 0, tokens = 0;
    for (const auto& [key, pool] : anchor_store_of(of).all()) {
      if (key.pool != kLearnedPool) continue;
      for (const SharedAnchor& anchor : pool.anchors) {
        bytes += static_cast<double>(anchor->bytes()) - static_cast<double>(anchor->text_kv.size_bytes());
        tokens += anchor->length;
      }
    }
    return tokens > 0 ? bytes / tokens : 0.0;
  }

 private:
  /// An anchor of the same tokens in another order, with small offsets.
  SharedAnchor random_anchor(const Anchor& like, int number, std::uint64_t& state) {
    // Each anchor of a prompt has memory of its own, or reading it would cost less than it does; prompts share it.
    auto& offset = offsets_[{like.before.size(), number}];
    if (!offset) offset = std::make_shared<const std::vector<std::uint16_t>>(numbers_like(like.offset.size(), state));
    auto text = std::make_shared<SketchedText>(*like.text);
    const auto n = static_cast<std::size_t>(text->size());
    for (std::size_t at = n; at > 1; --at) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const std::size_t other = (state >> 33) % at;
      std::swap(text->tokens[at - 1], text->tokens[other]);
      std::swap_ranges(&text->sketch[(at - 1) * SketchedText::kSketch],
                       &text->sketch[at * SketchedText::kSketch - 1] + 1, &text->sketch[other * SketchedText::kSketch]);
    }
    text->hash = hash_of(text->tokens);
    auto anchor = std::make_shared<Anchor>();
    anchor->shape = like.shape;
    anchor->text = text;
    anchor->before = like.before;
    anchor->length = like.length;
    anchor->offset = *offset;
    anchor->owner = offset;
    return anchor;
  }

  /// Small numbers of either sign; those that were made for another anchor of the same length serve again.
  std::vector<std::uint16_t> numbers_like(std::size_t count, std::uint64_t& state) const {
    for (const auto& [key, numbers] : offsets_) {
      if (numbers && numbers->size() == count) return *numbers;
    }
    std::vector<std::uint16_t> values(count);
    for (std::uint16_t& value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = f32_to_bf16((static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5f) * 0.02f);
    }
    return values;
  }

  std::uint64_t seed_;
  // By the number of placeholders in front, and the anchor's own.
  std::map<std::pair<std::size_t, int>, std::shared_ptr<const std::vector<std::uint16_t>>> offsets_;
};

}  // namespace

std::unique_ptr<LearnedState> learned_anchors(std::uint64_t seed) { return std::make_unique<LearnedAnchors>(seed); }

}  // namespace baton::inline v1::lab
