// SPDX-License-Identifier: Apache-2.0
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/base/distributions.cpp"
#include <hwy/foreach_target.h>
// These must come after foreach_target.
#include <hwy/contrib/algo/find-inl.h>
#include <hwy/contrib/math/math-inl.h>

#include <baton/distributions.h>
#include <algorithm>
#include <cmath>
#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace baton::base {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLanes = 8;
using Wide = hn::CappedTag<double, kLanes>;
using Single = hn::CappedTag<double, 1>;

/// Returns the sum of fn(tag, i) over n elements, in kLanes sums that are added in a fixed order.
template <class Fn>
HWY_INLINE double sum_of(std::size_t n, const Fn& fn) {
  const Wide wide;
  const Single single;
  const std::size_t width = hn::Lanes(wide);
  HWY_ALIGN double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; lane += width)
      hn::Store(hn::Add(hn::Load(wide, lanes + lane), fn(wide, i + lane)), wide, lanes + lane);
  }
  for (; i < n; ++i) lanes[i % kLanes] += hn::GetLane(fn(single, i));
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class D>
HWY_INLINE auto load(D d, const float* values) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), values));
}

/// n is at least 1.
float largest(const float* values, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t width = hn::Lanes(d);
  float most = values[0];
  std::size_t i = 0;
  if (n >= 4 * width) {  // four, since one maximum waits for the one before it
    auto a = hn::LoadU(d, values), b = a, c = a, e = a;
    for (; i + 4 * width <= n; i += 4 * width) {
      a = hn::Max(a, hn::LoadU(d, values + i));
      b = hn::Max(b, hn::LoadU(d, values + i + width));
      c = hn::Max(c, hn::LoadU(d, values + i + 2 * width));
      e = hn::Max(e, hn::LoadU(d, values + i + 3 * width));
    }
    most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
  }
  for (; i < n; ++i) most = std::max(most, values[i]);
  return most;
}

std::size_t index_of_largest(const float* values, std::size_t n) {
  return hn::Find(hn::ScalableTag<float>(), largest(values, n), values, n);
}

double sum_of_exp(const float* logits, double most, std::size_t n) {
  return sum_of(
      n, [&](auto d, std::size_t i) HWY_ATTR { return hn::Exp(d, hn::Sub(load(d, logits + i), hn::Set(d, most))); });
}

double sum_of_divergence(const float* p, double p_sum, const float* q, double q_sum, std::size_t n) {
  return sum_of(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto log_p = hn::Sub(load(d, p + i), hn::Set(d, p_sum));
    const auto log_q = hn::Sub(load(d, q + i), hn::Set(d, q_sum));
    return hn::Mul(hn::Exp(d, log_p), hn::Sub(log_p, log_q));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::base
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton {
namespace base {
HWY_EXPORT(largest);
HWY_EXPORT(index_of_largest);
HWY_EXPORT(sum_of_exp);
HWY_EXPORT(sum_of_divergence);

// These are in the namespace of the kernels: if only one instruction set is compiled, the dispatch is a name inside it.
static float dispatch_largest(std::span<const float> logits) {
  return HWY_DYNAMIC_DISPATCH(largest)(logits.data(), logits.size());
}

static std::size_t dispatch_index_of_largest(std::span<const float> logits) {
  return HWY_DYNAMIC_DISPATCH(index_of_largest)(logits.data(), logits.size());
}

static double dispatch_sum_of_exp(std::span<const float> logits, double most) {
  return HWY_DYNAMIC_DISPATCH(sum_of_exp)(logits.data(), most, logits.size());
}

static double dispatch_sum_of_divergence(std::span<const float> p, double p_sum, std::span<const float> q,
                                         double q_sum) {
  return HWY_DYNAMIC_DISPATCH(sum_of_divergence)(p.data(), p_sum, q.data(), q_sum, p.size());
}
}  // namespace base

inline namespace v1 {

double log_sum_exp(std::span<const float> logits) {
  const double most = base::dispatch_largest(logits);
  return most + std::log(base::dispatch_sum_of_exp(logits, most));
}

std::size_t likeliest(std::span<const float> logits) { return base::dispatch_index_of_largest(logits); }

double divergence(std::span<const float> p, double p_sum, std::span<const float> q, double q_sum) {
  return std::max(base::dispatch_sum_of_divergence(p, p_sum, q, q_sum), 0.0);
}

}  // namespace v1
}  // namespace baton
#endif  // HWY_ONCE
