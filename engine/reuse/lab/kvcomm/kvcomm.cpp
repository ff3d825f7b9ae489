// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/kvcomm/kvcomm.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "engine/reuse/method_state.h"
#include "engine/tensor/tensor.h"

namespace baton {

std::span<const std::uint16_t> KvcommRows::row(std::int32_t layer, std::int32_t token) const {
  const std::int64_t width = 2 * shape.layer(layer);
  return std::span(kv).subspan(static_cast<std::size_t>(2 * length * shape.before(layer) + token * width),
                               static_cast<std::size_t>(width));
}

std::span<std::uint16_t> KvcommRows::row(std::int32_t layer, std::int32_t token) {
  const auto found = std::as_const(*this).row(layer, token);
  return std::span(kv).subspan(static_cast<std::size_t>(found.data() - kv.data()), found.size());
}

namespace {

/// Replaces [anchors, count] distances by weights: for each of `count`, a softmax over the anchors of the negative
/// distances.
void softmax_over_anchors(std::vector<double>& distances, std::size_t count) {
  for (std::size_t i = 0; i < std::min(count, distances.size()); ++i) {
    double least = distances[i], sum = 0.0;
    for (std::size_t at = i; at < distances.size(); at += count) least = std::min(least, distances[at]);
    for (std::size_t at = i; at < distances.size(); at += count) sum += distances[at] = std::exp(least - distances[at]);
    for (std::size_t at = i; at < distances.size(); at += count) distances[at] /= sum;
  }
}

/// Calls each(layer, channel, is_key, difference) for the channels of a text's token and an anchor's.
template <class Each>
void compare_rows(const KvcommRows& text, std::int32_t token, const KvcommRows& other, std::int32_t other_token,
                  const Each& each) {
  for (std::int32_t layer = 0; layer < text.shape.layers(); ++layer) {
    const auto a = text.row(layer, token), b = other.row(layer, other_token);
    for (std::size_t c = 0; c < a.size(); ++c)
      each(layer, c, c < a.size() / 2, double{bf16_to_f32(a[c])} - double{bf16_to_f32(b[c])});
  }
}

double value_distance(const KvcommRows& text, const KvcommRows& other) {
  double squares = 0.0;
  for (std::int32_t token = 0; token < text.length; ++token) {
    compare_rows(text, token, other, token, [&](std::int32_t, std::size_t, bool is_key, double difference) {
      if (!is_key) squares += difference * difference;
    });
  }
  return std::sqrt(squares);
}

}  // namespace

KvcommGate kvcomm_gate(const KvcommOptions& options, const KvcommPool& pool, const KvcommRows& text) {
  KvcommGate gate;
  for (std::size_t i = 0; i < pool.size(); ++i) {
    if (pool[i]->base->length < text.length) continue;
    gate.usable.push_back(i);
    gate.distances.push_back(value_distance(text, *pool[i]->base));
  }
  gate.weights = gate.distances;
  softmax_over_anchors(gate.weights, 1);
  for (const double weight : gate.weights) gate.entropy -= weight > 0.0 ? weight * std::log(weight) : 0.0;
  const auto count = static_cast<double>(gate.usable.size());
  gate.becomes_anchor = gate.usable.size() < 2 || gate.entropy > double{options.gamma} * std::log(count);
  if (gate.becomes_anchor) return gate;
  for (const std::size_t i : kvcomm_nucleus(gate.weights, options.top_p)) gate.activated.push_back(gate.usable[i]);
  return gate;
}

std::vector<std::size_t> kvcomm_nucleus(std::span<const double> weights, double top_p) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  std::size_t count = 0;
  double sum = 0.0;
  while (count < order.size() && sum + weights[order[count]] < top_p) sum += weights[order[count++]];
  if (count > 0) order.resize(count);
  return order;
}

std::size_t kvcomm_evicted(const KvcommPool& pool, std::int32_t window) {
  const auto end = pool.begin() + std::min<std::ptrdiff_t>(std::max(1, window), std::ssize(pool));
  const auto least =
      std::min_element(pool.begin(), end, [](const auto& a, const auto& b) { return a->activations < b->activations; });
  return static_cast<std::size_t>(least - pool.begin());
}

KvcommWeights kvcomm_token_weights(const KvcommPool& usable, const KvcommRows& text) {
  const auto n = static_cast<std::size_t>(text.length);
  KvcommWeights weights{std::vector<double>(usable.size() * n), std::vector<double>(usable.size() * n)};
  const auto channels = static_cast<double>(text.shape.total());
  for (std::size_t a = 0; a < usable.size(); ++a) {
    for (std::int32_t token = 0; token < text.length; ++token) {
      double keys = 0.0, values = 0.0;
      compare_rows(text, token, *usable[a]->base, token,
                   [&](std::int32_t, std::size_t, bool is_key, double difference) {
                     (is_key ? keys : values) += std::abs(difference);
                   });
      const std::size_t at = a * n + static_cast<std::size_t>(token);
      weights.keys[at] = keys / channels;
      weights.values[at] = values / channels;
    }
  }
  softmax_over_anchors(weights.keys, n);
  softmax_over_anchors(weights.values, n);
  return weights;
}

KvcommWeights kvcomm_channel_weights(const KvcommPool& usable, const KvcommRows& text) {
  const auto channels = static_cast<std::size_t>(text.shape.total());
  KvcommWeights weights{std::vector<double>(usable.size() * channels), std::vector<double>(usable.size() * channels)};
  for (std::size_t a = 0; a < usable.size(); ++a) {
    const KvcommRows& other = *usable[a]->base;
    for (std::int32_t token = 0; token < text.length; ++token) {
      compare_rows(text, token, other, other.length - text.length + token,
                   [&](std::int32_t layer, std::size_t c, bool is_key, double difference) {
                     const auto width = static_cast<std::size_t>(text.shape.layer(layer));
                     const std::size_t at = a * channels + static_cast<std::size_t>(text.shape.before(layer));
                     (is_key ? weights.keys[at + c] : weights.values[at + c - width]) += difference * difference;
                   });
    }
  }
  for (std::vector<double>* sums : {&weights.keys, &weights.values}) {
    for (double& sum : *sums) sum = std::sqrt(sum);
    softmax_over_anchors(*sums, channels);
  }
  return weights;
}

KvcommRows kvcomm_offset(const KvcommPool& usable, const KvcommRows& text) {
  const KvcommWeights weights = kvcomm_token_weights(usable, text);
  const auto n = static_cast<std::size_t>(text.length);
  KvcommRows mixed{text.shape, text.length, std::vector<std::uint16_t>(text.kv.size())};
  std::vector<double> sum;
  for (std::int32_t layer = 1; layer < text.shape.layers(); ++layer) {  // the first depends on the token alone
    for (std::int32_t token = 0; token < text.length; ++token) {
      const std::span<std::uint16_t> out = mixed.row(layer, token);
      sum.assign(out.size(), 0.0);
      for (std::size_t a = 0; a < usable.size(); ++a) {
        const std::size_t at = a * n + static_cast<std::size_t>(token);
        const auto offset = std::as_const(usable[a]->offset).row(layer, token);
        for (std::size_t c = 0; c < out.size(); ++c)
          sum[c] += (c < out.size() / 2 ? weights.keys : weights.values)[at] * double{bf16_to_f32(offset[c])};
      }
      for (std::size_t c = 0; c < out.size(); ++c) out[c] = f32_to_bf16(static_cast<float>(sum[c]));
    }
  }
  return mixed;
}

KvcommRows kvcomm_following(const KvcommPool& usable, const KvcommRows& text) {
  const KvcommWeights weights = kvcomm_channel_weights(usable, text);
  const auto channels = static_cast<std::size_t>(text.shape.total());
  const KvcommRows& like = usable.front()->following;
  KvcommRows mixed{like.shape, like.length, std::vector<std::uint16_t>(like.kv.size())};
  std::vector<double> sum;
  for (std::int32_t layer = 0; layer < like.shape.layers(); ++layer) {
    const auto width = static_cast<std::size_t>(like.shape.layer(layer));
    for (std::int32_t token = 0; token < like.length; ++token) {
      const std::span<std::uint16_t> out = mixed.row(layer, token);
      sum.assign(out.size(), 0.0);
      for (std::size_t a = 0; a < usable.size(); ++a) {
        const std::size_t at = a * channels + static_cast<std::size_t>(like.shape.before(layer));
        const auto kv = std::as_const(usable[a]->following).row(layer, token);
        for (std::size_t c = 0; c < out.size(); ++c)
          sum[c] += (c < width ? weights.keys[at + c] : weights.values[at + c - width]) * double{bf16_to_f32(kv[c])};
      }
      for (std::size_t c = 0; c < out.size(); ++c) out[c] = f32_to_bf16(static_cast<float>(sum[c]));
    }
  }
  return mixed;
}

namespace {

/// A placeholder whose text has KV, in one prompt.
struct KvcommSlot {
  PlaceKey key;
  std::int32_t begin = 0;       // position of its first token
  std::int32_t following = 0;   // tokens of fixed text behind it
  std::vector<TokenId> tokens;  // those that have KV
  std::shared_ptr<const KvcommRows> base;
  KvcommGate gate;
  KvcommPool usable;
  std::string reason;

  /// Tokens of the fixed text whose KV is placed: none if an anchor was cut off there, so that it has no such KV.
  std::int32_t placed_following() const {
    const bool known = std::all_of(usable.begin(), usable.end(),
                                   [&](const auto& anchor) { return anchor->following.length == following; });
    return known ? following : 0;
  }
};

/// Pools of one engine. Threads: the engine's thread only, except for bytes().
class KvcommPools {
 public:
  KvcommPools(Backend& backend, std::int64_t budget_bytes) : backend_(backend), budget_(budget_bytes) {}

  Backend& backend() const { return backend_; }
  std::int64_t bytes() const { return bytes_; }
  void on_bytes(std::function<void(std::int64_t)> changed) { on_bytes_ = std::move(changed); }
  const std::map<PlaceKey, KvcommPool>& all() const { return pools_; }

  /// Looks at each placeholder of a prompt whose text has KV, and counts the activations of its anchors.
  std::vector<std::optional<KvcommSlot>> look(const PromptToPlace& prompt, const KvcommOptions& options);
  /// Adds the text of a slot with its KV in a prompt that was computed in full. An anchor of the same text is replaced
  /// and keeps its age and activations.
  void learn(const KvcommSlot& slot, const KvCache& cache, const KvcommOptions& options);

 private:
  std::shared_ptr<const KvcommRows> base_of(const std::shared_ptr<const Segment>& segment);
  void remove(KvcommPool& pool, std::size_t index);
  void keep_budget(std::int32_t window);
  static std::int64_t bytes_of(const KvcommAnchor& anchor);

  Backend& backend_;
  const std::int64_t budget_;
  std::function<void(std::int64_t)> on_bytes_;
  std::map<PlaceKey, KvcommPool> pools_;
  /// Base KV on the host, which the pools of all readers of a text share.
  std::map<std::weak_ptr<const Segment>, std::weak_ptr<const KvcommRows>, std::owner_less<>> bases_;
  std::atomic<std::int64_t> bytes_ = 0;
};

std::shared_ptr<const KvcommRows> KvcommPools::base_of(const std::shared_ptr<const Segment>& segment) {
  std::erase_if(bases_, [](const auto& entry) { return entry.first.expired() || entry.second.expired(); });
  if (const auto known = bases_.find(segment); known != bases_.end()) {
    if (auto rows = known->second.lock()) return rows;
  }
  auto rows = std::make_shared<const KvcommRows>(
      KvcommRows{width_of(segment->layout()), segment->length(), kv_on_host(backend_, *segment)});
  bases_[segment] = rows;
  return rows;
}

std::string reason_of(const KvcommGate& gate, std::size_t anchors, float gamma) {
  const std::size_t usable = gate.usable.size();
  if (usable < 2) return fmt::format("{} of {} anchors are at least as long", usable, anchors);
  return fmt::format("entropy {:.3f} of {} anchors, {:.2f} log {} = {:.3f} allowed", gate.entropy, usable, gamma,
                     usable, double{gamma} * std::log(static_cast<double>(usable)));
}

std::vector<std::optional<KvcommSlot>> KvcommPools::look(const PromptToPlace& prompt, const KvcommOptions& options) {
  std::vector<std::optional<KvcommSlot>> slots(prompt.parts.size());
  const std::vector<PlaceKey> places = places_of(prompt.parts, options.pool);
  std::int32_t at = 0;
  bool learns = false;
  for (std::size_t i = 0; i < prompt.parts.size(); ++i) {
    const std::vector<TokenId> tokens(prompt.parts[i].tokens.begin(), prompt.parts[i].tokens.end());
    const std::int32_t begin = at;
    at += static_cast<std::int32_t>(tokens.size());
    if (prompt.parts[i].slot.empty() || !prompt.segments[i]) continue;
    KvcommSlot& slot = slots[i].emplace();
    slot.key = places[i];
    slot.begin = begin;
    slot.base = base_of(prompt.segments[i]);
    slot.tokens.assign(tokens.begin(), tokens.begin() + slot.base->length);
    // The last token of a truncated answer has no KV, so the text behind the answer does not begin where the KV ends.
    const bool whole = slot.base->length == static_cast<std::int32_t>(tokens.size());
    for (std::size_t next = i + 1; whole && next < prompt.parts.size() && prompt.parts[next].slot.empty(); ++next)
      slot.following += static_cast<std::int32_t>(prompt.parts[next].tokens.size());
    const auto known = pools_.find(slot.key);
    const KvcommPool pool = known != pools_.end() ? known->second : KvcommPool{};
    slot.gate = kvcomm_gate(options, pool, *slot.base);
    for (const std::size_t index : slot.gate.usable) slot.usable.push_back(pool[index]);
    for (const std::size_t index : slot.gate.activated) ++pool[index]->activations;
    learns = learns || slot.gate.becomes_anchor;
    slot.reason = reason_of(slot.gate, pool.size(), options.gamma);
  }
  for (std::optional<KvcommSlot>& slot : slots) {
    if (slot && learns && !slot->gate.becomes_anchor)
      slot->reason = "computed, because another text of the prompt becomes an anchor";
  }
  return slots;
}

/// A base that several pools share counts in each.
std::int64_t KvcommPools::bytes_of(const KvcommAnchor& anchor) {
  return anchor.base->bytes() + anchor.offset.bytes() + anchor.following.bytes() +
         static_cast<std::int64_t>(anchor.tokens.size() * sizeof(TokenId) + sizeof(KvcommAnchor));
}

void KvcommPools::learn(const KvcommSlot& slot, const KvCache& cache, const KvcommOptions& options) {
  auto anchor = std::make_shared<KvcommAnchor>();
  anchor->base = slot.base;
  anchor->tokens = slot.tokens;
  anchor->offset = {slot.base->shape, slot.base->length, kv_on_host(backend_, cache, slot.begin, slot.base->length)};
  for (std::size_t i = 0; i < slot.base->kv.size(); ++i) {
    std::uint16_t& value = anchor->offset.kv[i];
    value = f32_to_bf16(bf16_to_f32(value) - bf16_to_f32(slot.base->kv[i]));
  }
  anchor->following = {slot.base->shape, slot.following,
                       kv_on_host(backend_, cache, slot.begin + slot.base->length, slot.following)};
  const std::int64_t before = bytes_;
  KvcommPool& pool = pools_[slot.key];
  pool.reserve(pool.size() + 1);  // from here on nothing fails
  const auto twin =
      std::find_if(pool.begin(), pool.end(), [&](const auto& other) { return other->tokens == anchor->tokens; });
  bytes_ += bytes_of(*anchor);
  if (twin != pool.end()) {
    anchor->activations = (*twin)->activations;
    bytes_ -= bytes_of(**twin);
    *twin = std::move(anchor);
  } else {
    while (std::ssize(pool) >= std::max(1, options.size)) remove(pool, kvcomm_evicted(pool, options.window));
    pool.push_back(std::move(anchor));
  }
  keep_budget(options.window);
  if (on_bytes_ && bytes_ != before) on_bytes_(bytes_ - before);
}

void KvcommPools::remove(KvcommPool& pool, std::size_t index) {
  bytes_ -= bytes_of(*pool[index]);
  pool.erase(pool.begin() + static_cast<std::ptrdiff_t>(index));
}

/// Evicts from the pools with the most anchors.
void KvcommPools::keep_budget(std::int32_t window) {
  while (bytes_ > budget_) {
    const auto largest = std::max_element(
        pools_.begin(), pools_.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (largest == pools_.end() || largest->second.empty()) return;
    remove(largest->second, kvcomm_evicted(largest->second, window));
    if (largest->second.empty()) pools_.erase(largest);
  }
}

/// The texts of one prompt. One placeholder that becomes an anchor has the whole prompt computed (Algorithm 1).
class KvcommTexts : public PromptTexts {
 public:
  KvcommTexts(KvcommPools& pools, std::vector<std::optional<KvcommSlot>> slots, const KvcommOptions& options)
      : pools_(pools), slots_(std::move(slots)), options_(options) {
    learning_ =
        std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot && slot->gate.becomes_anchor; });
  }

  bool place(std::size_t part, PlacedSegment&, PartUse& use) override {
    const KvcommSlot& slot = *slots_[part];
    const auto count = static_cast<double>(slot.usable.size());
    const std::vector<double>& distances = slot.gate.distances;
    use.reason = slot.reason;
    use.numbers = {{"count", count},
                   {"ambiguity", count > 1 ? slot.gate.entropy / std::log(count) : 0.0},
                   {"distance", distances.empty() ? 0.0 : *std::min_element(distances.begin(), distances.end())}};
    return !learning_;
  }
  std::int32_t following(std::size_t part) const override { return slots_[part]->placed_following(); }
  bool by_layer(std::size_t) const override { return false; }
  bool insert(RopeTable& angles, KvCache& cache, std::size_t part, const PlacedSegment& placed, std::int32_t first,
              LayerSpan layers) override {
    const KvcommSlot& slot = *slots_[part];
    const bool is_text = placed.segment == nullptr;
    const std::int32_t n = placed.length() - first;
    if (n <= 0) return true;
    const KvcommRows rows =
        is_text ? kvcomm_following(slot.usable, *slot.base) : kvcomm_offset(slot.usable, *slot.base);
    Buffer& memory = uploaded_.emplace_back(
        pools_.backend().allocate_uninitialized(std::max<std::size_t>(1, static_cast<std::size_t>(rows.bytes()))));
    pools_.backend().copy_to_device(memory.data(), std::as_bytes(std::span(rows.kv)));
    std::vector<std::int32_t> row(static_cast<std::size_t>(n));
    std::iota(row.begin(), row.end(), first);
    const auto in_layer = [&](std::int32_t layer) {
      const std::int64_t width = 2 * rows.shape.layer(layer), before = 2 * rows.length * rows.shape.before(layer);
      return BasicView<const std::byte>{memory.data() + before * static_cast<std::int64_t>(sizeof(std::uint16_t)),
                                        DType::bf16, rows.length, width, width};
    };
    const CorrectionSource source{in_layer, row, 1.0f, 0};
    place_corrected(pools_.backend(), angles, cache, {placed.begin + first, placed.segment, first, n, layers},
                    placed.begin + first, {&source, 1});
    return true;
  }
  void release() override {
    uploaded_.clear();
    if (!learning_) slots_.clear();
  }
  void learn(const KvCache& cache) override {
    if (!learning_) return;
    for (const std::optional<KvcommSlot>& slot : slots_) {
      if (slot && slot->gate.becomes_anchor) pools_.learn(*slot, cache, options_);
    }
  }

 private:
  KvcommPools& pools_;
  std::vector<std::optional<KvcommSlot>> slots_;  // one for each part of the prompt
  KvcommOptions options_;
  bool learning_ = false;         // all of the prompt is computed
  std::vector<Buffer> uploaded_;  // operations may still read them
};

class KvcommState : public MethodState {
 public:
  KvcommState(Backend& backend, std::int64_t budget_bytes) : pools_(backend, budget_bytes) {}

  std::unique_ptr<PromptTexts> look(const PromptToPlace& prompt) override {
    const KvcommOptions& options = own<KvcommOptions>(prompt.reuse);
    return std::make_unique<KvcommTexts>(pools_, pools_.look(prompt, options), options);
  }
  std::int64_t bytes() const override { return pools_.bytes(); }
  void on_bytes(std::function<void(std::int64_t)> changed) override { pools_.on_bytes(std::move(changed)); }
  const std::map<PlaceKey, KvcommPool>& pools() const { return pools_.all(); }

 private:
  KvcommPools pools_;
};

PromptSchedule kvcomm_schedule(const ReuseOptions&, const ReuseDecision&, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [](const PlacedSegment&, std::int32_t, std::int32_t) {});
}

std::string kvcomm_problem(const ReuseOptions& reuse) {
  std::string problem;
  expect_not_negative(problem, "kvcomm.gamma", own<KvcommOptions>(reuse).gamma);
  expect_fraction(problem, "kvcomm.top_p", own<KvcommOptions>(reuse).top_p);
  return problem;
}

std::vector<MethodKey> kvcomm_keys() {
  using Type = MethodKey::Type;
  return {
      {.name = "kvcomm.size",
       .type = Type::integer,
       .low = 1,
       .high = 10000,
       .standard = "20",
       .doc = "Maximum number of anchors in one pool; a pool belongs to one placeholder of one prompt.",
       .lab = true},
      {.name = "kvcomm.window",
       .type = Type::integer,
       .low = 1,
       .high = 10000,
       .standard = "5",
       .doc = "From a full pool, the least activated of this many oldest anchors is evicted.",
       .lab = true},
      {.name = "kvcomm.gamma",
       .type = Type::number,
       .high = 100,
       .standard = "0.3",
       .doc = "Weights of more than gamma log(anchors) nats make a text a new anchor (eq. 5).",
       .lab = true},
      {.name = "kvcomm.top_p",
       .type = Type::number,
       .high = 1,
       .standard = "0.9",
       .doc = "The sum of weights below which the nearest anchors count as activated.",
       .lab = true},
      {.name = "kvcomm.pool",
       .type = Type::text,
       .doc = "Name of the pools; pools of different names share no anchors.",
       .lab = true},
  };
}

void read_kvcomm(GivenKeys& given, ReuseOptions& reuse) {
  KvcommOptions& options = own<KvcommOptions>(reuse);
  options.size = static_cast<std::int32_t>(given.integer("kvcomm.size").value_or(options.size));
  options.window = static_cast<std::int32_t>(given.integer("kvcomm.window").value_or(options.window));
  options.gamma = given.number("kvcomm.gamma").value_or(options.gamma);
  options.top_p = given.number("kvcomm.top_p").value_or(options.top_p);
  options.pool = given.text("kvcomm.pool").value_or(options.pool);
}

constexpr Method kKvcomm = {
    .name = "kvcomm",
    .summary = "KV is corrected by what happened to earlier texts in the same place, by KVComm's published rules.",
    .traits = {.segments = true, .learns = true},
    .schedule = kvcomm_schedule,
    .problem = kvcomm_problem,
    .make_state = [](Backend& backend, const Model&, const StateBudget& budget) -> std::unique_ptr<MethodState> {
      return std::make_unique<KvcommState>(backend, budget.bytes);
    },
    .keys = kvcomm_keys,
    .read = read_kvcomm};

}  // namespace

const Method& kvcomm_method() { return kKvcomm; }

const std::map<PlaceKey, KvcommPool>& kvcomm_pools_of(const MethodState& state) {
  return dynamic_cast<const KvcommState&>(state).pools();
}

}  // namespace baton
