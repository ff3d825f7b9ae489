// SPDX-License-Identifier: Apache-2.0
// The inverse frequencies follow transformers/modeling_rope_utils.py, in double.
#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace baton {
namespace {

/// Llama 3.1: long wavelengths are stretched by the factor, short ones are kept, and those in between are blended.
double llama3(double frequency, const RopeConfig& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double context = rope.original_context;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// YaRN (arXiv 2309.00071): the number of rotations of a pair within the original context decides how far its
/// wavelength is stretched.
class Yarn {
 public:
  Yarn(const RopeConfig& rope, std::int32_t head_dim) : factor_(rope.factor) {
    // The (fractional) pair that makes `turns` rotations within the original context.
    const auto pair_of = [&](double turns) {
      return head_dim * std::log(rope.original_context / (turns * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(rope.theta));
    };
    low_ = pair_of(rope.beta_fast);
    high_ = pair_of(rope.beta_slow);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, head_dim - 1.0);
    if (low_ == high_) high_ += 0.001;
  }

  double operator()(double frequency, std::size_t pair) const {
    const double ramp = std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
    return frequency / factor_ * ramp + frequency * (1.0 - ramp);
  }

 private:
  double factor_, low_, high_;
};

}  // namespace

Rope::Rope(const ModelConfig& config, RopeKind kind) {
  const RopeConfig& rope = config.rope_of(kind);
  const std::int32_t width = config.rotated(kind);
  inverse_frequencies_.resize(width / 2);
  if (kind == RopeKind::none) return;
  for (std::size_t pair = 0; pair < inverse_frequencies_.size(); ++pair)
    inverse_frequencies_[pair] = rope.turning == 0 || static_cast<std::int32_t>(pair) < rope.turning
                                     ? 1.0 / std::pow(rope.theta, 2.0 * static_cast<double>(pair) / width)
                                     : 0.0;
  const bool is_long = rope.scaling == RopeScaling::longrope && config.context > rope.original_context;
  const std::vector<float>& divisors = is_long ? rope.long_divisors : rope.divisors;
  for (std::size_t pair = 0; pair < divisors.size(); ++pair)
    inverse_frequencies_[pair] /= static_cast<double>(divisors[pair]);

  switch (rope.scaling) {
    case RopeScaling::none:
      break;
    case RopeScaling::linear:
      for (double& frequency : inverse_frequencies_) frequency /= rope.factor;
      break;
    case RopeScaling::llama3:
      for (double& frequency : inverse_frequencies_) frequency = llama3(frequency, rope);
      break;
    case RopeScaling::longrope:
      attention_factor_ = rope.attention_factor;
      break;
    case RopeScaling::yarn: {
      const Yarn yarn(rope, width);
      for (std::size_t pair = 0; pair < inverse_frequencies_.size(); ++pair)
        inverse_frequencies_[pair] = yarn(inverse_frequencies_[pair], pair);
      attention_factor_ = rope.attention_factor;
      if (attention_factor_ == 0.0) attention_factor_ = rope.factor <= 1.0 ? 1.0 : 0.1 * std::log(rope.factor) + 1.0;
      break;
    }
  }
}

LayerRopes::LayerRopes(const ModelConfig& config) {
  std::vector<RopeKind> kinds;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const RopeKind kind = config.rope_kind(layer);
    const auto found = std::ranges::find(kinds, kind);
    of_layer_.push_back(static_cast<std::size_t>(found - kinds.begin()));
    if (found != kinds.end()) continue;
    kinds.push_back(kind);
    distinct_.emplace_back(config, kind);
  }
}

void Rope::angles(std::span<float> cos, std::span<float> sin, std::span<const std::int32_t> positions) const {
  const std::size_t pairs = inverse_frequencies_.size();
  if (cos.size() != positions.size() * pairs || sin.size() != cos.size())
    throw std::invalid_argument("Rope::angles: cos and sin must be [T, R/2]");
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const double angle = positions[row] * inverse_frequencies_[pair];
      cos[row * pairs + pair] = static_cast<float>(std::cos(angle) * attention_factor_);
      sin[row * pairs + pair] = static_cast<float>(std::sin(angle) * attention_factor_);
    }
  }
}

RopeAngles RopeTable::range(std::size_t rope, std::int32_t begin, std::int32_t n) {
  reserve(begin + n);
  const auto half = static_cast<std::int64_t>(ropes_.distinct()[rope].inverse_frequencies().size());
  const TensorView both = memory_[rope].view(DType::f32, 2 * std::int64_t{positions_}, half);
  return {both.row_range(begin, begin + n), both.row_range(positions_ + begin, positions_ + begin + n)};
}

void RopeTable::reserve(std::int32_t positions) {
  if (positions <= positions_) return;
  constexpr std::int32_t kMinPositions = 1024;
  const std::int32_t grown = std::max({kMinPositions, positions, 2 * positions_});
  std::vector<std::int32_t> all(static_cast<std::size_t>(grown));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Buffer> memory;
  for (const Rope& rope : ropes_.distinct()) {
    const std::size_t half = all.size() * rope.inverse_frequencies().size();
    std::vector<float> angles(2 * half);
    rope.angles(std::span(angles).first(half), std::span(angles).subspan(half), all);
    memory.push_back(device_.allocate(angles.size() * sizeof(float)));
    device_.copy_to_device(memory.back().data(), std::as_bytes(std::span(angles)));
  }
  memory_ = std::move(memory);
  positions_ = grown;
}

}  // namespace baton
