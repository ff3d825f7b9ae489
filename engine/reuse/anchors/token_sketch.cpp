// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/token_sketch.h"

#include <algorithm>
#include <cmath>
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

double TokenSketcher::embedding_distance(const SketchedText& text, const SketchedText& other) {
  const auto n = text.tokens.size();
  const std::int64_t width = model_.config.width;
  const auto values = n * static_cast<std::size_t>(width);
  const auto embedded = [&](std::span<const TokenId> tokens) {
    std::vector<float> made(values);
    const Buffer memory = backend_.allocate_uninitialized(values * sizeof(float));
    backend_.embed(memory.view(DType::f32, static_cast<std::int64_t>(n), width), *model_.weights.embedding, tokens);
    backend_.copy_to_host(std::as_writable_bytes(std::span(made)), memory.data());
    return made;
  };
  if (n == 0) return 0.0;
  const std::vector<float> a = embedded(text.tokens), b = embedded(std::span(other.tokens).first(n));
  double squares = 0.0;
  for (std::size_t i = 0; i < values; ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares);
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

}  // namespace baton
