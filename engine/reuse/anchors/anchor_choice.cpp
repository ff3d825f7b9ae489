// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/anchor_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "engine/base/hash.h"

namespace baton {

namespace {

constexpr std::int64_t kWidth = SketchedText::kSketch;
constexpr std::int32_t kSample = 256;  // tokens from which the typical distance is estimated

}  // namespace

std::uint64_t hash_of(std::span<const TokenId> tokens, std::uint64_t seed) {
  return hash_bytes(tokens.data(), tokens.size_bytes(), seed);
}

void TokenSketcher::project(std::span<const TokenId> tokens) {
  const std::int64_t width = model_.config.width;
  if (!projection_) {
    std::vector<float> signs(static_cast<std::size_t>(kWidth * width));
    std::uint64_t state = 0x9e3779b97f4a7c15u;
    for (float& sign : signs) {  // xorshift64*
      state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
      sign = (state * 0x2545f4914f6cdd1du) >> 63 != 0 ? 1.0f : -1.0f;
    }
    const ConstTensorView view =
        BasicView<const std::byte>{reinterpret_cast<const std::byte*>(signs.data()), DType::f32, kWidth, width, width};
    projection_ = backend_.load_matrix({&view, 1}, DType::f32);
  }
  std::vector<TokenId> fresh;
  fresh.reserve(tokens.size());  // so that no token is known without a sketch
  const auto first = sketches_.size();
  known_.resize(static_cast<std::size_t>(model_.config.vocabulary), -1);
  for (const TokenId id : tokens) {
    std::int32_t& row = known_.at(static_cast<std::size_t>(id));
    if (row >= 0) continue;
    row = static_cast<std::int32_t>(first / kWidth + fresh.size());
    fresh.push_back(id);
  }
  if (fresh.empty()) return;
  try {
    sketches_.resize(first + fresh.size() * kWidth);
    sketch_fresh(fresh, std::span(sketches_).subspan(first));
  } catch (...) {
    for (const TokenId id : fresh) known_[static_cast<std::size_t>(id)] = -1;
    sketches_.resize(first);
    throw;
  }
}

void TokenSketcher::sketch_fresh(std::span<const TokenId> tokens, std::span<float> made) {
  const std::int64_t width = model_.config.width;
  const auto n = static_cast<std::int64_t>(tokens.size());
  const Buffer memory = backend_.allocate_uninitialized(static_cast<std::size_t>(n * (width + kWidth)) * sizeof(float));
  const TensorView embedded = memory.view(DType::f32, n, width);
  const TensorView out{memory.data() + static_cast<std::size_t>(n * width) * sizeof(float), DType::f32, n, kWidth,
                       kWidth};
  backend_.embed(embedded, *model_.weights.embedding, tokens);
  backend_.matmul(out, embedded, *projection_, {});
  backend_.copy_to_host(std::as_writable_bytes(made), out.data);
  for (float& value : made) value *= scale_ > 0.0f ? scale_ : 1.0f;
}

void TokenSketcher::set_scale() {
  std::vector<TokenId> sample;
  const std::int32_t vocabulary = model_.config.vocabulary;
  for (std::int32_t i = 0; i < kSample; ++i)
    sample.push_back(static_cast<TokenId>(std::int64_t{vocabulary} * i / kSample));
  project(sample);
  std::vector<float> distances;
  for (std::size_t a = 0; a < sample.size(); ++a) {
    for (std::size_t b = a + 1; b < sample.size(); ++b) {
      const float *x = row_of(sample[a]), *y = row_of(sample[b]);
      float sum = 0.0f;
      for (std::int64_t i = 0; i < kWidth; ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
      if (sum > 0.0f) distances.push_back(std::sqrt(sum));
    }
  }
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  if (!distances.empty()) std::nth_element(distances.begin(), middle, distances.end());
  scale_ = distances.empty() ? 1.0f : 1.0f / *middle;
  for (float& value : sketches_) value *= scale_;
}

std::shared_ptr<const SketchedText> TokenSketcher::sketch(std::span<const TokenId> tokens) {
  if (scale_ == 0.0f) set_scale();
  project(tokens);
  auto text = std::make_shared<SketchedText>();
  text->tokens.assign(tokens.begin(), tokens.end());
  text->hash = hash_of(tokens);
  text->sketch.reserve(tokens.size() * kWidth);
  for (const TokenId id : tokens) text->sketch.insert(text->sketch.end(), row_of(id), row_of(id) + kWidth);
  return text;
}

std::vector<std::int32_t> TokenSketcher::rows_of(const SketchedText& text) {
  const auto is_known = [&](TokenId id) { return id >= 0 && id < model_.config.vocabulary; };
  if (!std::all_of(text.tokens.begin(), text.tokens.end(), is_known)) return {};
  if (scale_ == 0.0f) set_scale();
  project(text.tokens);
  std::vector<std::int32_t> rows;
  rows.reserve(text.tokens.size());
  for (const TokenId id : text.tokens) rows.push_back(known_[static_cast<std::size_t>(id)]);
  return rows;
}

ConstTensorView TokenSketcher::table() {
  const auto rows = static_cast<std::int64_t>(sketches_.size()) / kWidth;
  const auto view = [&](const std::byte* data) {
    return BasicView<const std::byte>{data, DType::f32, rows, kWidth, kWidth};
  };
  if (host_memory_) return view(reinterpret_cast<const std::byte*>(sketches_.data()));
  const std::span<const std::byte> all = std::as_bytes(std::span(sketches_));
  if (device_.bytes() < all.size()) {
    device_ = backend_.allocate_uninitialized(2 * all.size());
    sent_ = 0;
  }
  if (sent_ < all.size()) backend_.copy_to_device(device_.data() + sent_, all.subspan(sent_));
  sent_ = all.size();
  return view(device_.data());
}

Alignment align(const SketchedText& text, const SketchedText& other) {
  Aligner aligner(other.sketch);
  for (std::int64_t i = 0; i < text.size(); ++i) aligner.push(text.sketch.data() + i * SketchedText::kSketch);
  return aligner.result();
}

Alignment align_by_index(const SketchedText& text, const SketchedText& other) {
  if (other.size() < text.size())
    throw std::invalid_argument("align_by_index: the other text is shorter than the text");
  Alignment alignment;
  double squares = 0.0;
  for (std::int64_t i = 0; i < text.size(); ++i) {
    const std::int64_t at = i * SketchedText::kSketch;
    const float distance = token_distance(text.sketch.data() + at, other.sketch.data() + at);
    alignment.to.push_back(static_cast<std::int32_t>(i));
    alignment.mismatch.push_back(distance);
    squares += double{distance} * distance;
  }
  if (text.size() > 0) alignment.distance = static_cast<float>(std::sqrt(squares / static_cast<double>(text.size())));
  return alignment;
}

namespace {

constexpr float kTemperature = 0.15f;   // distances this much above the nearest weigh 1/e
constexpr float kContext = 0.5f;        // weight of the distances of the placeholders before the text
constexpr float kMinWeight = 0.002f;    // smaller weights are left out: they change nothing and cost a pass each
constexpr std::size_t kNeighbours = 8;  // records that predict an error
constexpr float kFarther = 1.5f;        // beyond this multiple of the farthest measured distance, the error is unknown
constexpr float kNear = 0.05f;

std::uint64_t pair_hash(const SketchedText& text, const SketchedText& other, bool aligned) {
  return (text.hash * 0x9e3779b97f4a7c15u) ^ (other.hash + 0x7f4a7c15u + (text.hash << 7) + (aligned ? 0 : 1));
}

bool same(const SketchedText& a, const SketchedText& b) { return a.hash == b.hash && a.tokens == b.tokens; }

bool same_place(const Anchor& anchor, const SketchedText& text, std::span<const SharedText> before) {
  return same(*anchor.text, text) &&
         std::equal(before.begin(), before.end(), anchor.before.begin(), anchor.before.end(),
                    [](const auto& a, const auto& b) { return same(*a, *b); });
}

/// Returns the mean error of the records nearest in distance; below 0 without records.
float expected_error(std::vector<AnchorRecord> records, float distance) {
  if (records.empty()) return -1.0f;
  const auto nearer = [&](const AnchorRecord& a, const AnchorRecord& b) {
    return std::abs(a.distance - distance) < std::abs(b.distance - distance);
  };
  const std::size_t n = std::min(kNeighbours, records.size());
  std::partial_sort(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(n), records.end(), nearer);
  float sum = 0.0f;
  for (std::size_t i = 0; i < n; ++i) sum += records[i].error;
  return sum / static_cast<float>(n);
}

/// Returns the largest distance that the pool has measured.
float farthest(const std::vector<AnchorRecord>& records) {
  float most = 0.0f;
  for (const AnchorRecord& record : records) most = std::max(most, record.distance);
  return most;
}

void weigh(AnchorChoice& choice, const AnchorOptions& options, std::span<const float> distances, bool exact) {
  std::vector<float> weights(distances.size());
  const std::size_t nearest =
      static_cast<std::size_t>(std::min_element(distances.begin(), distances.end()) - distances.begin());
  if (exact || options.offsets == AnchorOptions::Offsets::nearest) {
    weights[nearest] = 1.0f;
  } else {
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = std::exp((distances[nearest] - distances[i]) / kTemperature);
  }
  float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
  float entropy = 0.0f;
  for (float& weight : weights) {
    weight /= sum;
    if (weight > 0.0f) entropy -= weight * std::log(weight);
    if (weight < kMinWeight) weight = 0.0f;
  }
  choice.ambiguity = weights.size() > 1 ? entropy / std::log(static_cast<float>(weights.size())) : 0.0f;
  sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0f) continue;
    choice.weights.push_back(weights[i] / sum);
    choice.anchors[kept] = choice.anchors[i];
    choice.alignments[kept++] = choice.alignments[i];
  }
  choice.anchors.resize(kept);
  choice.alignments.resize(kept);
}

void learn(AnchorChoice& choice, std::string reason) {
  choice.kind = AnchorChoice::Kind::learn;
  choice.reason = std::move(reason);
}

/// Gate error: decides by the errors that the pool has measured.
void judge_by_error(AnchorChoice& choice, const AnchorOptions& options, const AnchorPoolView& pool, bool exact) {
  const auto size = static_cast<std::int32_t>(pool.anchors.size());
  if (exact) {
    choice.kind = AnchorChoice::Kind::hit;
    choice.error = 0.0f;
    choice.reason = "the same text was seen in this place before";
    return;
  }
  // Every text is learned until the pool is half full, then every second text, then texts far from all measured ones.
  if (size < (options.size + 1) / 2) return learn(choice, fmt::format("anchor {} of {}", size + 1, options.size));
  if (size < options.size && pool.since_learning > 0)
    return learn(choice, fmt::format("anchor {} of {}", size + 1, options.size));
  choice.error = expected_error(pool.records, choice.distance);
  if (choice.error < 0.0f) return learn(choice, "the pool has not measured an error yet");
  if (choice.distance > kFarther * farthest(pool.records) + kNear)
    return learn(choice, fmt::format("unlike all anchors: the distance is {:.2f}", choice.distance));
  if (choice.error > options.refuse) {
    choice.kind = AnchorChoice::Kind::refuse;
    choice.reason = fmt::format("expected error {:.2f}, above the limit of {:.2f}", choice.error, options.refuse);
  } else {
    choice.kind = choice.error > options.trust ? AnchorChoice::Kind::refine : AnchorChoice::Kind::hit;
    choice.reason = fmt::format("expected error {:.2f}", choice.error);
  }
}

/// Gate entropy (after KVComm eq. 5). With one anchor the entropy is always 0, so the distance decides.
void judge_by_entropy(AnchorChoice& choice, const AnchorOptions& options, std::size_t anchors, bool exact) {
  constexpr float kAlone = 0.5f;
  const bool alone = anchors == 1 && choice.distance > kAlone;
  if (!exact && (choice.ambiguity > options.gamma || alone)) {
    return learn(choice, anchors == 1 ? fmt::format("distance {:.2f} from the only anchor", choice.distance)
                                      : fmt::format("entropy {:.2f} log {} above {:.2f} log {}", choice.ambiguity,
                                                    anchors, options.gamma, anchors));
  }
  choice.kind = AnchorChoice::Kind::hit;
  choice.reason = fmt::format("entropy {:.2f} log {}", choice.ambiguity, anchors);
}

}  // namespace

std::vector<float> AnchorChoice::mismatch(std::int32_t n) const {
  std::vector<float> sum(static_cast<std::size_t>(n), 0.0f);
  for (std::size_t a = 0; a < weights.size(); ++a) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights[a] * alignments[a]->mismatch[i];
  }
  return sum;
}

std::shared_ptr<const Alignment> AlignmentMemo::find(const SharedText& text, const SharedText& other, bool aligned) {
  const std::uint64_t key = pair_hash(*text, *other, aligned);
  if (const auto found = known_.find(key); is_of(found, *text)) return found->second;
  trim();
  return keep(key, aligned ? align(*text, *other) : align_by_index(*text, *other));
}

bool AlignmentMemo::is_of(const Known::const_iterator& entry, const SketchedText& text) const {
  return entry != known_.end() && entry->second && entry->second->to.size() == text.tokens.size();
}

bool AlignmentMemo::expects(const SharedText& text, const SharedText& other) {
  const auto [entry, added] = known_.try_emplace(pair_hash(*text, *other, true));
  return added || (entry->second && !is_of(entry, *text));
}

void AlignmentMemo::trim() {
  if (tokens_ <= kMaxTokens) return;
  known_.clear();
  tokens_ = 0;
}

void AlignmentMemo::add(const SharedText& text, const SharedText& other, Alignment alignment) {
  keep(pair_hash(*text, *other, true), std::move(alignment));
}

std::shared_ptr<const Alignment> AlignmentMemo::keep(std::uint64_t key, Alignment alignment) {
  tokens_ += alignment.to.size() + 1;
  return known_[key] = std::make_shared<const Alignment>(std::move(alignment));
}

AnchorChoice choose_anchors(const AnchorOptions& options, const AnchorPoolView& pool, const SharedText& text,
                            std::span<const SharedText> before, AlignmentMemo& memo) {
  AnchorChoice choice;
  std::vector<float> distances;
  bool exact = false;
  for (const SharedAnchor& anchor : pool.anchors) {
    if (!options.aligned && anchor->length < text->size()) continue;  // the paper's length rule
    const bool in_place = same_place(*anchor, *text, before);
    auto alignment = memo.find(text, anchor->text, options.aligned);
    float distance = alignment->distance, around = 0.0f;
    for (std::size_t i = 0; i < before.size() && i < anchor->before.size(); ++i)
      around += memo.find(before[i], anchor->before[i], true)->distance;
    if (!before.empty()) distance += kContext * around / static_cast<float>(before.size());
    exact = exact || in_place;
    distances.push_back(in_place ? 0.0f : distance);
    choice.anchors.push_back(anchor);
    choice.alignments.push_back(std::move(alignment));
  }
  const std::size_t usable = choice.anchors.size();
  if (usable == 0) {
    learn(choice, pool.anchors.empty() ? "the pool has no anchor yet" : "the text is longer than every anchor");
    return choice;
  }
  choice.distance = *std::min_element(distances.begin(), distances.end());
  weigh(choice, options, distances, exact);
  switch (options.gate) {
    case AnchorOptions::Gate::error:
      judge_by_error(choice, options, pool, exact);
      break;
    case AnchorOptions::Gate::entropy:
      judge_by_entropy(choice, options, usable, exact);
      break;
    case AnchorOptions::Gate::none:
      choice.kind = AnchorChoice::Kind::hit;
      choice.reason = fmt::format("{} anchors", usable);
      break;
  }
  return choice;
}

}  // namespace baton
