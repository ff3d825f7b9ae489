#include "engine/reuse/token_sketch.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr std::int64_t kWidth = SketchedText::kSketch;
constexpr std::int32_t kSample = 256;  // tokens whose distances say what is typical

}  // namespace

std::uint64_t hash_of(std::span<const TokenId> tokens, std::uint64_t seed) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed);
}

float token_distance(const float* a, const float* b) {
  constexpr std::int64_t kSums = 8;  // side by side, so that the compiler takes vectors
  float sums[kSums] = {};
  for (std::int64_t i = 0; i < kWidth; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) sums[j] += (a[i + j] - b[i + j]) * (a[i + j] - b[i + j]);
  }
  float sum = 0.0f;
  for (const float part : sums) sum += part;
  return std::min(1.0f, std::sqrt(sum));
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
  for (const TokenId id : tokens) {
    if (known_.try_emplace(id, known_.size()).second) fresh.push_back(id);
  }
  if (fresh.empty()) return;
  const auto n = static_cast<std::int64_t>(fresh.size());
  const Buffer memory = backend_.allocate(static_cast<std::size_t>(n * (width + kWidth)) * sizeof(float));
  const TensorView embedded = memory.view(DType::f32, n, width);
  const TensorView out{memory.data() + static_cast<std::size_t>(n * width) * sizeof(float), DType::f32, n, kWidth,
                       kWidth};
  backend_.embed(embedded, *model_.weights.embedding, fresh);
  backend_.matmul(out, embedded, *projection_, {});
  const std::size_t first = sketches_.size();
  sketches_.resize(first + static_cast<std::size_t>(n * kWidth));
  backend_.copy_to_host(std::as_writable_bytes(std::span(sketches_).subspan(first)), out.data);
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
      const float* x = &sketches_[known_.at(sample[a]) * kWidth];
      const float* y = &sketches_[known_.at(sample[b]) * kWidth];
      float sum = 0.0f;
      for (std::int64_t i = 0; i < kWidth; ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
      if (sum > 0.0f) distances.push_back(std::sqrt(sum));
    }
  }
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  if (!distances.empty()) std::nth_element(distances.begin(), middle, distances.end());
  scale_ = distances.empty() ? 1.0f : 1.0f / *middle;
}

std::shared_ptr<const SketchedText> TokenSketcher::sketch(std::span<const TokenId> tokens) {
  if (scale_ == 0.0f) set_scale();
  project(tokens);
  auto text = std::make_shared<SketchedText>();
  text->tokens.assign(tokens.begin(), tokens.end());
  text->hash = hash_of(tokens);
  text->sketch.reserve(tokens.size() * kWidth);
  for (const TokenId id : tokens) {
    const float* row = &sketches_[known_.at(id) * kWidth];
    for (std::int64_t i = 0; i < kWidth; ++i) text->sketch.push_back(row[i] * scale_);
  }
  return text;
}

}  // namespace baton
